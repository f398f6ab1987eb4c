"""Length predictors: the only ones besides the engine that see a reply's true length."""
