"""What is served: layer layouts and what follows from them."""
