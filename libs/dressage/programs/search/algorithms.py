"""The searches by the name in their settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dressage.programs.engine.trees import Nodes
from dressage.programs.search.beam import BeamSearch
from dressage.programs.search.best import Improvement
from dressage.programs.search.climbing import Search
from dressage.programs.search.latent import LatentSearch, LatentSpace
from dressage.programs.search.parallel import Scorers
from dressage.programs.search.settings import SearchSettings


def new_search(
    scorers: Scorers,
    settings: SearchSettings,
    starts: Sequence[Nodes] = (),
    on_improvement: Callable[[Improvement], None] | None = None,
    space: LatentSpace | None = None,
) -> Search | BeamSearch | LatentSearch:
    """Return the search that the settings name; see `Search`, `BeamSearch` and `LatentSearch`.

    :param space: the latent space of ``latent-cem`` and ``latent-cebs``; default: that of Karel programs.

    :raises InvalidArgument: for starts with random search.
    """
    if settings.algorithm == "cebs":
        return BeamSearch(scorers, settings, starts, on_improvement)
    if settings.algorithm in ("latent-cem", "latent-cebs"):
        from dressage.programs.latent.autoencoder import load_autoencoder  # reads the weights only where they are used

        return LatentSearch(scorers, settings, space or load_autoencoder(), starts, on_improvement)
    return Search(scorers, settings, starts, on_improvement)
