"""Write the report of an experiment into a page of this repository, between two of its lines, and pictures next to it.

    python -m research.page experiments/results/intents --page docs/evidence/intents.md --videos
    python -m research.page experiments/results/programs --reference scheduled --published experiments/paper/llmgs.json \\
        --page docs/evidence/programs.md
    python -m research.page experiments/results/controls --published experiments/paper/r2po.json

Results of the method `program` and of the method `reward` have reports of their own. Without a page the report is printed, and
`out/report` gets the pictures.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from dressage.cli.experiment_report import read
from dressage.errors import DressageError, InvalidArgument
from dressage.experiments import pictures, report
from dressage.experiments.analysis import METRICS, Analysis, analyse
from dressage.local.connection import Connection, ServerOptions, execute
from dressage.sdk.files import read_source

from research import behaviours, programs
from research.published import Published, load_published, published_numbers, score_table

BEGIN, END = "<!-- report: begin (written by `dressage report`) -->", "<!-- report: end -->"
"""Lines of a page between which the report is written."""
_MAX_VIDEO_BYTES = 64 * 2**20


def write(
    analysis: Analysis,
    published: Sequence[Published],
    folder: Path,
    page: Path | None,
    *,
    server: ServerOptions | None = None,
) -> str:
    """Draw the pictures into the folder, write the page if there is one, and return the report.

    :param server: where the sessions are, whose videos are shown; None: pictures that the folder has stay.
    :raises InvalidArgument: for a page without markers.
    """
    before, after = ("", "") if page is None else around_report(page)
    place = folder if page is None else page.parent
    folder.mkdir(parents=True, exist_ok=True)
    records = analysis.results.records
    if behaviours.are_behaviours(records):
        rows = behaviours.behaviours(analysis)
        strips = add_strips({row.shown: folder / behaviours.strip_name(row) for row in rows}, server)
        links = {cell: _link(path, place) for cell, path in strips.items()}
        text = behaviours.markdown(analysis, strips=links, title=page is None)
    elif programs.are_programs(records):
        successes = programs.successes(analysis.results, analysis.reference)
        links = {name: _link(path, place) for name, path in programs.draw_successes(successes, folder).items()}
        text = programs.markdown(analysis, successes, published=published, pictures=links, title=page is None)
    else:
        text = report.markdown(analysis, pictures=[_link(path, place) for path in pictures.draw(analysis, folder)])
        text = "\n".join([text, *_published_tables(analysis, published)])
    if page is not None:
        page.write_text(before + text + after, encoding="utf-8")
    return text


def _published_tables(analysis: Analysis, published: Sequence[Published]) -> list[str]:
    lines = []
    for metric in METRICS:
        lines += score_table(analysis, metric, published) if any(paper.methods(metric) for paper in published) else []
    return [*lines, *published_numbers(analysis, published)]


def add_strips(files: Mapping[str, Path], server: ServerOptions | None) -> dict[str, Path]:
    """Write the strip of each session's best video, where the server has one, and return those that are there.

    A strip that a folder has stays where the server has no video: the page is written anew on machines without the sessions.

    :param files: by session.
    """

    async def work(connection: Connection) -> None:
        for cell, path in files.items():
            try:
                session = await connection.client.get_session(cell)
                data = bytearray()
                async for chunk in connection.client.read_artifact(session.best_video):
                    data += chunk
                    if len(data) > _MAX_VIDEO_BYTES:
                        raise ValueError("the video is too large")
                path.write_bytes(behaviours.strip(bytes(data)))
            except (DressageError, ValueError) as error:
                print(f"{cell}: no new pictures: {error}", file=sys.stderr)

    if server is not None:
        execute(server, work)
    return {cell: path for cell, path in files.items() if path.is_file()}


def _link(path: Path, place: Path) -> str:
    return Path(os.path.relpath(path, place)).as_posix()


def around_report(page: Path) -> tuple[str, str]:
    """Return a page's text before and after its report, with the markers.

    :raises InvalidArgument: if it has no markers.
    """
    text = read_source(page, field="--page")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        expected = f"a page with the lines {BEGIN} and {END}"
        raise InvalidArgument(field="--page", problem="no place for the report", value=str(page), expected=expected)
    return f"{before}{begin}\n\n", f"\n{end}{after}"


def main() -> None:
    """Write the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="results of experiments")
    parser.add_argument("--metric", default="score", choices=list(METRICS))
    parser.add_argument("--reference", default="", help="method that tests compare with all others")
    parser.add_argument(
        "--published", action="append", default=[], type=Path, metavar="FILE", help="numbers of a paper"
    )
    parser.add_argument("--page", type=Path, help="Markdown file that has the markers")
    parser.add_argument("--videos", action="store_true", help="make the pictures of sessions anew from their videos")
    parser.add_argument("--data-dir", type=Path, help="data folder of the sessions")
    options = parser.parse_args()
    analysis = analyse(read(options.folders), metric=options.metric, reference=options.reference)
    published = [load_published(path) for path in options.published]
    folder = Path("out/report") if options.page is None else options.page.with_suffix("")
    server = ServerOptions(data_dir=options.data_dir) if options.videos else None
    text = write(analysis, published, folder, options.page, server=server)
    if options.page is None:
        print(text)


if __name__ == "__main__":
    main()
