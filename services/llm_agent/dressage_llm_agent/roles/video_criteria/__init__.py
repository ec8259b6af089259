"""Intent to what one would have to see."""
