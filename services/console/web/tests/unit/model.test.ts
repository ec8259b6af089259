import { create } from '@bufbuild/protobuf'
import { describe, expect, it } from 'vitest'

import { EventSchema } from '../../src/gen/dressage/v1/event_pb'
import { ParameterSpecSchema, SessionSpecSchema } from '../../src/gen/dressage/v1/session_pb'
import { runCommand } from '../../src/lib/command'
import { duration, shellWord, short } from '../../src/lib/format'
import { SessionLive } from '../../src/live/model'

const MEMBER = 'sessions/s/iterations/1/assignments/train/members/default-s1'

function progress(sequence: number, steps: number, value: number) {
  return create(EventSchema, {
    sequence: BigInt(sequence),
    iteration: 1,
    payload: {
      case: 'progress',
      value: { assignment: 'a', members: [{ name: MEMBER, config: 'default', seed: 1n, envSteps: BigInt(steps), targetEnvSteps: 100n, metrics: { entropy: value } }] },
    },
  })
}

describe('a live session', () => {
  it('adds each event once', () => {
    const live = new SessionLive()
    const events = [progress(1, 10, 1), progress(2, 20, 2)]
    for (const event of [...events, ...events]) live.add(event)
    const member = live.iterations.get(1)!.members.get('default-s1')!
    expect(member.metrics.get('entropy')).toEqual({ x: [10, 20], y: [1, 2] })
    expect(member.seed).toBe(1)
  })

  it("replaces what a trainer's second attempt repeats", () => {
    const live = new SessionLive()
    for (const [at, [steps, value]] of [[10, 1], [20, 2], [30, 3], [20, 5]].entries()) live.add(progress(at + 1, steps!, value!))
    expect(live.iterations.get(1)!.members.get('default-s1')!.metrics.get('entropy')).toEqual({ x: [10, 20], y: [1, 5] })
  })

  it('orders evaluations that finish out of order', () => {
    const live = new SessionLive()
    for (const [at, step] of [30, 10, 20, 10].entries()) {
      live.add(
        create(EventSchema, {
          sequence: BigInt(at + 1),
          iteration: 1,
          payload: { case: 'evaluationFinished', value: { member: MEMBER, evaluation: { envStep: BigInt(step), returns: [at, at + 2] } } },
        }),
      )
    }
    const series = live.iterations.get(1)!.members.get('default-s1')!.metrics.get('evaluation/environment return')
    expect(series).toEqual({ x: [10, 20, 30], y: [4, 3, 1] })
  })
})

describe('a judged session', () => {
  const judged = (sequence: number, subject: string, step: number, score: number) =>
    create(EventSchema, {
      sequence: BigInt(sequence),
      iteration: 1,
      payload: { case: 'judged', value: { subject, envStep: BigInt(step), judgment: { score } } },
    })

  it('ends the curve with the last checkpoint, and leaves the confirmation out', () => {
    const live = new SessionLive()
    live.add(progress(1, 90, 1))
    live.add(judged(2, MEMBER, 50, 0.5))
    live.add(judged(3, MEMBER, 0, 0.8))
    live.add(judged(4, MEMBER.replace('/train/', '/confirm/'), 0, 0.1))
    expect(live.iterations.get(1)!.members.get('default-s1')!.metrics.get("judge's score")).toEqual({ x: [50, 90], y: [0.5, 0.8] })
  })
})

describe('text for people', () => {
  it('quotes words for a shell', () => {
    expect(shellWord('HalfCheetah-v5')).toBe('HalfCheetah-v5')
    expect(shellWord(`it's $(rm -rf /)`)).toBe(`'it'\\''s $(rm -rf /)'`)
  })
  it('writes the command of a spec', () => {
    const spec = create(SessionSpecSchema, { intent: 'hop; ls', environment: 'environments/Hopper-v5', maxIterations: 3 })
    spec.methodSpec = { case: 'parameters', value: create(ParameterSpecSchema) }
    expect(runCommand(spec)).toBe(`dressage run 'hop; ls' --env Hopper-v5 --method parameters --iterations 3`)
  })
  it('keeps numbers short', () => {
    expect([0, 0.12345, 4492.3, 1e-7, 123.456, Number.NaN].map((value) => short(value))).toEqual(['0', '0.123', '4,492', '1.00e-7', '123.5', '–'])
    expect([5, 65, 3700].map(duration)).toEqual(['5 s', '1 min 5 s', '1 h 1 min'])
  })
})
