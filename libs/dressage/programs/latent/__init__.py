"""A latent space of programs: a variational autoencoder over trees, and its weights."""
