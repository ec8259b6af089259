import { create } from '@bufbuild/protobuf'
import { readFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { describe, expect, it } from 'vitest'

import { BenchmarkSchema } from '../../src/gen/dressage/v1/benchmark_service_pb'
import { SessionState } from '../../src/gen/dressage/v1/session_pb'
import { stagesOf } from '../../src/lib/benchmark'
import { MOST_CASES, parseCases } from '../../src/lib/cases'

const KNOWN = ['environments/Hopper-v5', 'environments/karel/DoorKey']
const ROOT = resolve(import.meta.dirname, '../../../../..')

describe('cases from a file', () => {
  it('are read from CSV in any order of columns, and from JSON', () => {
    const table = 'difficulty,instruction,env_id\neasy,"hop, then stop",Hopper-v5\n,open the door,karel/DoorKey\n'
    const cases = [
      { intent: 'hop, then stop', environment: 'environments/Hopper-v5', category: '', difficulty: 'easy' },
      { intent: 'open the door', environment: 'environments/karel/DoorKey', category: '', difficulty: '' },
    ]
    expect(parseCases(table, KNOWN)).toEqual({ cases, problems: [] })
    expect(parseCases(JSON.stringify(cases), KNOWN)).toEqual({ cases, problems: [] })
  })

  it.each(['isaac_lab.csv', 'mujoco_exotic.csv'])('are read from the example %s', (name) => {
    const text = readFileSync(resolve(ROOT, 'examples/benchmarks', name), 'utf8')
    const { cases, problems } = parseCases(text)
    expect(problems).toEqual([])
    expect(cases.length).toBe(text.trim().split('\n').length - 1)
    expect(cases.every((entry) => entry.intent !== '' && entry.category !== '')).toBe(true)
  })

  it('name what is wrong, and are then none', () => {
    expect(parseCases('intent,env_id\nhop,Hopper-v5', KNOWN)).toEqual({ cases: [], problems: ['column instruction: missing; expected a first line with env_id,instruction,category,difficulty.'] })
    expect(parseCases('env_id,instruction\nHoper-v5,hop\nHopper-v5,\n', KNOWN).problems).toEqual(['case 2: instruction is missing.', 'case 1: unknown environment Hoper-v5.'])
    expect(parseCases('[{"intent": 3}]', KNOWN).problems[0]).toMatch(/^case 1: expected texts/)
    expect(parseCases('[', KNOWN).problems[0]).toMatch(/^not JSON/)
    const many = `env_id,instruction\n${'Hopper-v5,hop\n'.repeat(MOST_CASES + 1)}`
    expect(parseCases(many, KNOWN)).toMatchObject({ cases: [], problems: [`${MOST_CASES + 1} cases; expected at most ${MOST_CASES}.`] })
  })

  it('of an empty text are none, without a complaint', () => {
    expect(parseCases(' \n')).toEqual({ cases: [], problems: [] })
  })
})

describe('the stages of a benchmark', () => {
  it('count their own cases, and the mean score counts earlier stages and missing scores', () => {
    const ended = (stage: number, score?: number) => ({ stage, state: score === undefined ? SessionState.FAILED : SessionState.SUCCEEDED, session: 'sessions/x', ...(score === undefined ? {} : { score }) })
    const cases = [ended(1, 0.9), ended(1, 0.7), ended(2), { stage: 2, state: SessionState.RUNNING, session: 'sessions/y' }, { stage: 3 }]
    const stages = stagesOf(create(BenchmarkSchema, { cases }))
    expect(stages.map((stage) => [stage.number, stage.completed, stage.running, stage.passed])).toEqual([[1, 2, 0, 2], [2, 1, 1, 0], [3, 0, 0, 0]])
    expect(stages.map((stage) => stage.score)).toEqual([0.8, expect.closeTo(1.6 / 3), expect.closeTo(1.6 / 3)])
  })
})
