import { create } from '@bufbuild/protobuf'
import { describe, expect, it } from 'vitest'

import type { Iteration } from '../../src/gen/dressage/v1/session_pb'
import { IterationSchema } from '../../src/gen/dressage/v1/session_pb'
import { average, formatItems, MOST_ITEMS, parseItems, searchCurve } from '../../src/lib/compare'

describe('items in the address', () => {
  it('are read as they are written', () => {
    const text = 's-1,s-2/3,s-2/3/default-s0'
    expect(parseItems(text)).toEqual([
      { session: 's-1', iteration: 0, member: '' },
      { session: 's-2', iteration: 3, member: '' },
      { session: 's-2', iteration: 3, member: 'default-s0' },
    ])
    expect(formatItems(parseItems(text))).toBe(text)
  })

  it('leave out what is not an item, repetitions, and more than the page shows', () => {
    expect(parseItems('s-1,S-1,s-1/0,s-1/x,../x,s-1/2/<b>,,s-1')).toEqual([{ session: 's-1', iteration: 0, member: '' }])
    const many = Array.from({ length: 20 }, (_, index) => `s-${index}`).join(',')
    expect(parseItems(many)).toHaveLength(MOST_ITEMS)
  })
})

describe('the average of curves', () => {
  it('is the curve itself for one, with a band of no width', () => {
    const one = { x: [1, 2, 5], y: [3, 1, 4] }
    expect(average([one])).toEqual({ ...one, low: one.y, high: one.y })
  })

  it('interpolates, only where all curves have values', () => {
    const band = average([{ x: [0, 10, 20], y: [0, 10, 20] }, { x: [5, 15], y: [1, 1] }])
    expect(band).toEqual({ x: [5, 10, 15], y: [3, 5.5, 8], low: [1, 1, 1], high: [5, 10, 15] })
  })

  it('lies between the curves at every step, for random ones', () => {
    let state = 7
    const random = () => (state = (state * 48271) % 2147483647) / 2147483647
    for (let trial = 0; trial < 50; trial += 1) {
      const curves = Array.from({ length: 3 }, () => {
        const x = [...new Set(Array.from({ length: 12 }, () => Math.floor(random() * 40)))].sort((a, b) => a - b)
        return { x, y: x.map(() => random()) }
      })
      const band = average(curves)
      band.x.forEach((_, index) => {
        expect(band.low[index]!).toBeLessThanOrEqual(band.y[index]! + 1e-12)
        expect(band.y[index]!).toBeLessThanOrEqual(band.high[index]! + 1e-12)
      })
    }
  })

  it('is empty without a common range', () => {
    expect(average([{ x: [1], y: [1] }, { x: [2], y: [1] }]).x).toEqual([])
    expect(average([]).x).toEqual([])
  })
})

function rounds(...scores: number[]): Iteration[] {
  return scores.map((meanReturn, index) =>
    create(IterationSchema, {
      number: index + 1,
      proposal: { case: 'code', value: { chosen: 1, episodes: 50n, candidates: [{ meanReturn }] } },
    }),
  )
}

describe('the curve of a search', () => {
  it('never falls, and adds the episodes of all rounds', () => {
    expect(searchCurve(rounds(3, 1, 8))).toEqual({ x: [50, 100, 150], y: [3, 3, 8] })
  })

  it('places improvements of a search by the trainer by their episodes', () => {
    const search = { evaluated: 100n, episodes: 500n, bestScore: 9, improvements: [{ evaluated: 10n, score: 2 }, { evaluated: 60n, score: 9 }] }
    const found = searchCurve([create(IterationSchema, { number: 1, proposal: { case: 'parameters', value: { search } } })])
    expect(found).toEqual({ x: [50, 300, 500], y: [2, 9, 9] })
  })

  it('counts programs, not episodes, for programs', () => {
    const search = { evaluated: 40n, episodes: 1280n, bestScore: 1, improvements: [{ evaluated: 7n, score: 1 }] }
    const found = searchCurve([create(IterationSchema, { number: 1, proposal: { case: 'program', value: { search } } })])
    expect(found).toEqual({ x: [7, 40], y: [1, 1] })
  })
})
