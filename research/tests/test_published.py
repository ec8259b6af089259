"""Published numbers next to ours, and the salience of critics' explanations."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace

from dressage.api.v1 import session_pb2 as pb
from dressage.experiments.analysis import Results
from dressage.experiments.files import read_experiment
from dressage.experiments.records import Record

from research import salience
from research.published import load_published, score_table

EXPERIMENTS = Path(__file__).parents[2] / "experiments"


def test_the_papers_numbers_are_those_of_the_experiments() -> None:
    published = load_published(EXPERIMENTS / "paper" / "r2po.json")
    names = {entry.id for entry in read_experiment(EXPERIMENTS / "controls.yaml").environments}
    for metric in ("mean_winner", "best"):
        assert len(published.methods(metric)) == 10
        assert all(set(published.values(metric, name)) == set(published.methods(metric)) for name in names)
    assert published.values("mean_winner", "CartPole-v1")["R2PO"].mean == 474.67
    assert published.values("best", "FrozenLake-v1")["R2PO"].mean == 0.93
    record = Record(**{field.name: None for field in fields(Record)} | {"environment": "CartPole-v1", "method": "m"})
    table = score_table(SimpleNamespace(results=Results([record]), rows=[]), "best", [published])
    assert any("R2PO (published)" in line for line in table) and any("427.74" in line for line in table)


def test_revisions_count_by_whether_they_made_a_candidate_worse() -> None:
    iterations = []
    for number, (first, revised) in enumerate([(1.0, 3.0), (9.0, 5.0)], start=1):
        entry = pb.Iteration(number=number)
        entry.parameters.candidates.add(origin="search", mean_return=first)
        explanation = "I avoid the worst episode"
        entry.parameters.candidates.add(origin="critic", mean_return=revised, explanation=explanation)
        iterations.append(entry)
    revisions = salience.revisions_of(iterations)
    assert [entry.regression for entry in revisions] == [False, True]
    more = [salience.Revision(2.0, 1.0, "smoother"), salience.Revision(1.0, 0.0, "")]
    counts = salience.salience([*revisions, *more])
    assert (counts.regressions, counts.regressions_mentioning, counts.others, counts.others_mentioning) == (2, 1, 1, 1)
    text = salience.markdown({"r2po": counts})
    assert "| r2po | 50.0% (1/2) | 100.0% (1/1) | -50.0% [" in text
