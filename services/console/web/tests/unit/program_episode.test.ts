import { describe, expect, test } from 'vitest'

import { describeStep, endingOf, gridAfter, type ProgramEpisode, readProgramEpisode } from '../../src/lib/programEpisode'

const agent = (row: number, column: number) => ({ row, column, heading: 'east', note: '' })
const episode: ProgramEpisode = {
  task: 'karel/Harvester',
  state: 3,
  texts: { python: { text: 'def run():\n    move()\n    pickMarker()', lines: [2, 3] }, dsl: { text: 'DEF run m(\n    move\n    pickMarker\nm)', lines: [2, 3] } },
  grid: { rows: 2, columns: 3, walls: [[0, 0]], markers: [[1, 1, 2]], objects: [[0, 2, 'red ball']] },
  start: agent(1, 0),
  steps: [
    { statement: 0, kind: 'action', operation: 'move()', reward: 0, agent: agent(1, 1) },
    { statement: 1, kind: 'action', operation: 'pickMarker()', reward: 0.5, agent: agent(1, 1), markers: [[1, 1, 1]], walls: [[0, 0, false]], objects: [[0, 2, '']] },
  ],
  left_out: 0,
  return: 0.5,
  terminated: true,
  crashed: false,
}

describe('the grid after some steps', () => {
  test('begins as recorded', () => {
    const { cells, agent: at, total } = gridAfter(episode, 0)
    expect(cells.map((cell) => [cell.wall, cell.markers, cell.object])).toEqual([[true, 0, ''], [false, 0, ''], [false, 0, 'red ball'], [false, 0, ''], [false, 2, ''], [false, 0, '']])
    expect([at.column, total]).toEqual([0, 0])
  })

  test('has all changes of the steps, and those of going back', () => {
    const { cells, agent: at, total } = gridAfter(episode, 2)
    expect(cells.map((cell) => [cell.wall, cell.markers, cell.object])).toEqual([[false, 0, ''], [false, 0, ''], [false, 0, ''], [false, 0, ''], [false, 1, ''], [false, 0, '']])
    expect([at.column, total]).toEqual([1, 0.5])
    expect(gridAfter(episode, 1).cells[4]!.markers).toBe(2)
  })

  test('words', () => {
    expect([0, 1, 2].map((done) => describeStep(episode, done))).toEqual(['start', 'move()', 'pickMarker(), reward 0.5'])
    expect(endingOf(episode)).toBe('the task ended the episode')
    expect(() => readProgramEpisode('{"format": "other"}')).toThrow('the episode has the format other')
  })
})
