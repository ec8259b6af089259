"""The renderer: recorded simulator states to video, frames and frame grids."""
