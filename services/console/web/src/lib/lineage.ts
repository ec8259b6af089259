// Where the iterations of a session are drawn: generations from left to right, one row for each line of descent.

export type Place = { column: number; row: number }

/** Columns and rows of iterations, parents before children. The first child goes on in its parent's row; others open a row of their own. */
export function placesOf(nodes: { iteration: string; parent: string }[]): Map<string, Place> {
  const places = new Map<string, Place>()
  const continued = new Set<string>()
  let rows = 0
  for (const { iteration, parent } of nodes) {
    const from = places.get(parent)
    if (from === undefined) places.set(iteration, { column: 0, row: rows++ })
    else {
      places.set(iteration, { column: from.column + 1, row: continued.has(parent) ? rows++ : from.row })
      continued.add(parent)
    }
  }
  return places
}
