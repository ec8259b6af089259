// The grid of a program's task: walls, markers, objects and the agent, as a picture that scales.
import type { GridState } from '../lib/programEpisode'

const CELL = 20
const TURN: Record<string, number> = { east: 0, south: 90, west: 180, north: 270 }
/** Colours that names of objects begin with; all of them differ from the grid in both schemes. */
const COLORS: Record<string, string> = { red: '#d64541', green: '#2e9e4f', blue: '#2f7de1', purple: '#9b51c7', yellow: '#d9a200', grey: '#868e96' }

function Thing({ name, x, y }: { name: string; x: number; y: number }) {
  const color = COLORS[name.split(' ').find((word) => word in COLORS) ?? ''] ?? COLORS.grey!
  const middle = [x + CELL / 2, y + CELL / 2] as const
  if (name.endsWith('wall')) return <rect x={x} y={y} width={CELL} height={CELL} className="grid-wall" />
  if (name.includes('lava')) return <rect x={x} y={y} width={CELL} height={CELL} fill="#e8590c" />
  if (name.includes('goal')) return <rect x={x} y={y} width={CELL} height={CELL} fill={COLORS.green} />
  if (name.includes('ball')) return <circle cx={middle[0]} cy={middle[1]} r={CELL * 0.32} fill={color} />
  if (name.includes('door')) {
    return name.includes('open') ? (
      <rect x={x + 1} y={y + 1} width={4} height={CELL - 2} fill="none" stroke={color} strokeWidth={1.6} />
    ) : (
      <g>
        <rect x={x + 1.5} y={y + 1.5} width={CELL - 3} height={CELL - 3} fill="none" stroke={color} strokeWidth={2.4} />
        <circle cx={x + CELL * 0.72} cy={middle[1]} r={1.6} fill={color} />
      </g>
    )
  }
  if (name.includes('box')) return <rect x={x + 4} y={y + 4} width={CELL - 8} height={CELL - 8} fill="none" stroke={color} strokeWidth={2.4} />
  return (
    <text x={middle[0]} y={middle[1]} className="grid-word">
      {name.slice(0, 3)}
    </text>
  )
}

/** @param label what is seen, for people who do not see it. */
export function GridView({ state, columns, label }: { state: GridState; columns: number; label: string }) {
  const rows = state.cells.length / columns
  const { agent } = state
  const beneath = state.cells[agent.row * columns + agent.column]?.markers ?? 0
  const carried = agent.note.startsWith('carrying') ? agent.note.replace(/^carrying an? /, '') : ''
  return (
    <svg viewBox={`-1 -1 ${columns * CELL + 2} ${rows * CELL + 2}`} className="grid" role="img" aria-label={label} style={{ maxWidth: Math.min(560, columns * 44) }}>
      {state.cells.map((cell, index) => {
        const x = (index % columns) * CELL
        const y = Math.floor(index / columns) * CELL
        return (
          <g key={index}>
            <rect x={x} y={y} width={CELL} height={CELL} className={cell.wall ? 'grid-wall' : 'grid-free'} />
            {cell.object !== '' && <Thing name={cell.object} x={x} y={y} />}
            {cell.markers > 0 && (
              <g>
                <circle cx={x + CELL / 2} cy={y + CELL / 2} r={CELL * 0.3} fill="#e8a33d" />
                {cell.markers > 1 && (
                  <text x={x + CELL / 2} y={y + CELL / 2} className="grid-count">
                    {cell.markers}
                  </text>
                )}
              </g>
            )}
          </g>
        )
      })}
      <g transform={`translate(${(agent.column + 0.5) * CELL} ${(agent.row + 0.5) * CELL})`}>
        <path d={`M ${CELL * 0.4} 0 L ${-CELL * 0.3} ${CELL * 0.3} L ${-CELL * 0.14} 0 L ${-CELL * 0.3} ${-CELL * 0.3} Z`} className="grid-agent" transform={`rotate(${TURN[agent.heading] ?? 0})`} />
        {beneath > 0 && <circle cx={CELL * 0.32} cy={CELL * 0.32} r={2.6} fill="#e8a33d" />}
        {carried !== '' && <circle r={2.6} fill={COLORS[carried.split(' ')[0] ?? ''] ?? COLORS.grey} />}
      </g>
    </svg>
  )
}
