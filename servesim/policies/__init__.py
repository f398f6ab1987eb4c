"""Small choices that a researcher swaps: here queue orders and length predictors."""
