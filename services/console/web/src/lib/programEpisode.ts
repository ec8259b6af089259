// A recorded episode of a program, as `dressage.programs.trace_json` writes it, and the grid after any number of its steps.

const FORMAT = 'dressage.program_episode/1'

export type Agent = { row: number; column: number; heading: string; note: string }

/** A perception or an action. `statement` is its number in preorder, from 0; the other entries are what it changed. */
export type Step = {
  statement: number
  kind: 'test' | 'action'
  operation: string
  result?: boolean
  reward: number
  agent: Agent
  markers?: [number, number, number][]
  walls?: [number, number, boolean][]
  objects?: [number, number, string][]
}

/** A printed program, and the line of each statement, from 1. */
export type Printed = { text: string; lines: number[] }

export type ProgramEpisode = {
  task: string
  state: number
  texts: { python: Printed; dsl: Printed }
  grid: { rows: number; columns: number; walls: [number, number][]; markers: [number, number, number][]; objects: [number, number, string][] }
  start: Agent
  steps: Step[]
  left_out: number
  return: number
  terminated: boolean
  crashed: boolean
}

export type Cell = { wall: boolean; markers: number; object: string }

/** What cells hold, row by row, where the agent is, and the return so far. */
export type GridState = { cells: Cell[]; agent: Agent; total: number }

/** @throws Error for another format. */
export function readProgramEpisode(text: string): ProgramEpisode {
  const value = JSON.parse(text) as ProgramEpisode & { format?: string }
  if (value.format !== FORMAT) throw new Error(`the episode has the format ${String(value.format)}, not ${FORMAT}`)
  return value
}

/** @param done number of steps, 0 to `episode.steps.length`. */
export function gridAfter(episode: ProgramEpisode, done: number): GridState {
  const { rows, columns, walls, markers, objects } = episode.grid
  const cells: Cell[] = Array.from({ length: rows * columns }, () => ({ wall: false, markers: 0, object: '' }))
  const change = (row: number, column: number, part: Partial<Cell>) => {
    const cell = cells[row * columns + column]
    if (cell !== undefined) Object.assign(cell, part)
  }
  for (const [row, column] of walls) change(row, column, { wall: true })
  for (const [row, column, count] of markers) change(row, column, { markers: count })
  for (const [row, column, object] of objects) change(row, column, { object })
  let agent = episode.start
  let total = 0
  for (const step of episode.steps.slice(0, done)) {
    for (const [row, column, count] of step.markers ?? []) change(row, column, { markers: count })
    for (const [row, column, wall] of step.walls ?? []) change(row, column, { wall })
    for (const [row, column, object] of step.objects ?? []) change(row, column, { object })
    agent = step.agent
    total += step.reward
  }
  return { cells, agent, total }
}

/** What happened at a step, in words. */
export function describeStep(episode: ProgramEpisode, done: number): string {
  const step = episode.steps[done - 1]
  if (step === undefined) return 'start'
  const effect = step.kind === 'test' ? ` is ${step.result === true ? 'true' : 'false'}` : step.reward !== 0 ? `, reward ${Number(step.reward.toPrecision(3))}` : ''
  return step.operation + effect
}

/** Why the episode ended, in words. */
export function endingOf(episode: ProgramEpisode): string {
  if (episode.left_out > 0) return `${episode.left_out} further steps are not recorded`
  if (episode.terminated) return 'the task ended the episode'
  return episode.crashed ? 'stopped: a loop returned to an earlier state, or too many calls' : 'the program came to its end'
}
