import { create } from '@bufbuild/protobuf'
import { describe, expect, it } from 'vitest'

import { EventSchema } from '../../src/gen/dressage/v1/event_pb'
import {
  CheckpointChoice,
  EnvironmentOptionsSchema,
  FromParent,
  HyperparametersSchema,
  ProgramSpecSchema,
  RewardSpecSchema,
  RoleModelSchema,
  SessionSchema,
} from '../../src/gen/dressage/v1/session_pb'
import { criteriaFile, runCommand } from '../../src/lib/command'
import { scoredText } from '../../src/lib/format'
import { matrixOf } from '../../src/lib/matrix'
import { formatProgram } from '../../src/lib/program'
import { spendBy } from '../../src/lib/spend'
import { stack } from '../../src/lib/stack'
import { readEntry, tasksOf } from '../../src/lib/transcripts'
import { SessionLive } from '../../src/live/model'
import { placesOf } from '../../src/lib/lineage'
import { formOf, readForm, specOf, START } from '../../src/pages/new/form'

describe('the return of episodes in training', () => {
  const progress = (sequence: number, steps: number, episodes: number, value: number) =>
    create(EventSchema, {
      sequence: BigInt(sequence),
      iteration: 1,
      payload: {
        case: 'progress',
        value: {
          members: [
            { name: 'sessions/s/iterations/1/assignments/train/members/default-s0', config: 'default', envSteps: BigInt(steps), metrics: { episodes, episode_return: value, entropy: steps } },
          ],
        },
      },
    })

  it('has a point only where an episode has ended, other metrics at every step', () => {
    const live = new SessionLive()
    for (const [at, [steps, episodes, value]] of [[10, 0, 0], [20, 0, 0], [30, 4, 7], [40, 4, 7], [50, 6, 9]].entries()) live.add(progress(at + 1, steps!, episodes!, value!))
    const { metrics } = live.iterations.get(1)!.members.get('default-s0')!
    expect(metrics.get('episode_return')).toEqual({ x: [10, 30, 50], y: [0, 7, 9] })
    expect(metrics.get('entropy')!.x).toEqual([10, 20, 30, 40, 50])
  })

  it("keeps the points of a trainer's second attempt, which goes back", () => {
    const live = new SessionLive()
    for (const [at, [steps, episodes, value]] of [[10, 2, 1], [20, 3, 2], [10, 3, 5]].entries()) live.add(progress(at + 1, steps!, episodes!, value!))
    expect(live.iterations.get(1)!.members.get('default-s0')!.metrics.get('episode_return')).toEqual({ x: [10], y: [5] })
  })
})

describe('the score of an iteration', () => {
  it('is named, and only the score that decides has a verdict', () => {
    const first = { score: 1, confirmed: false, passed: false }
    const again = { score: 0.98, confirmed: true, passed: false }
    expect([first, again].map((scored) => scoredText(scored, 'program'))).toEqual(['1 on search states', '0.98 on report states, not passed'])
    expect([first, again].map((scored) => scoredText(scored, 'reward'))).toEqual(['1.00, not passed', '0.98 on fresh seeds, not passed'])
  })
})

describe('stacked series', () => {
  it('add up to the sums of the positive and of the negative values', () => {
    const areas = stack([{ x: [1, 2], y: [2, -1] }, { x: [1, 2], y: [3, 4] }, { x: [1, 2, 3], y: [-5, -2, 9] }])
    expect(areas.map((area) => area.x)).toEqual([[1, 2], [1, 2], [1, 2]])
    expect(areas.map((area) => [area.low, area.high])).toEqual([[[0, -1], [2, 0]], [[2, 0], [5, 4]], [[-5, -3], [0, -1]]])
  })
})

describe('transcripts', () => {
  it('are found by task and sample, in the order of their turns', () => {
    const keys = ['iterations/2/reviser/1-0', 'iterations/2/reviser/0-0', 'iterations/2/reviser/0-0-tool-1', 'reward_author/0-0', 'iterations/1/policy_author/3/0-0', 'iterations/1/policy_author/3/0-1'].map((key) => `sessions/s/llm/${key}.json`)
    const found = tasksOf([...keys, 'sessions/s/llm/notes.txt'])
    expect(found.map((task) => [task.role, task.iteration, task.turns.map((turn) => turn.turn)])).toEqual([
      ['reward_author', 0, [0]],
      ['policy_author', 1, [0]],
      ['policy_author', 1, [0]],
      ['reviser', 2, [0, 1]],
    ])
  })

  it('are read with the reply as the last message', () => {
    const entry = { kind: 'reply', model: 'm', messages: [{ role: 'user', content: 'do' }, { role: 'assistant', content: '', tool_calls: [{ name: 'look', arguments: '{}' }] }], reply: { text: 'done', tool_calls: [] }, usage: { input_tokens: 7, output_tokens: 2, dollars: null } }
    const read = readEntry(JSON.stringify(entry))!
    expect(read.messages.map((message) => [message.role, message.text])).toEqual([['user', 'do'], ['assistant', ''], ['reply', 'done']])
    expect(read.messages[1]!.calls).toEqual([{ name: 'look', arguments: '{}' }])
    expect([read.tokensIn, read.tokensOut, read.dollars]).toEqual([7, 2, null])
    expect(readEntry('{"kind": "tool_result"}')).toBeNull()
    expect(readEntry('not JSON')).toBeNull()
  })
})

describe('programs', () => {
  const program = 'DEF run m( WHILE c( noMarkersPresent c) w( IFELSE c( frontIsClear c) i( move i) ELSE e( turnLeft move e) w) pickMarker m)'

  it('have one statement a line, and lose no word', () => {
    const text = formatProgram(program)
    expect(text.split(/\s+/).filter(Boolean).join(' ')).toBe(program)
    expect(text).toContain('\n    IFELSE c( frontIsClear c) i(\n      move\n    i)\n    ELSE e(\n      turnLeft\n      move\n')
  })

  it('of other languages are left as they are', () => {
    expect(formatProgram('if wall: turn()')).toBe('if wall: turn()')
  })
})

describe('the matrix of a linear policy', () => {
  it('has a row for each output, and the bias last', () => {
    expect(matrixOf([1, 2, 3, 4, 5, 6, 7, 8], 2, 3)).toEqual({ rows: [[1, 2, 3], [4, 5, 6]], bias: [7, 8] })
    expect(matrixOf([1, 2, 3, 4, 5, 6], 2, 3)).toEqual({ rows: [[1, 2, 3], [4, 5, 6]], bias: null })
    expect(matrixOf([1, 2, 3], 2, 3)).toBeNull()
  })
})

describe('the form of a session', () => {
  const criteria = [
    { key: 1, title: ' speed ', description: 'at least 2 m/s', category: 'gait', on: true },
    { key: 2, title: 'posture', description: '', category: '', on: false },
    { key: 3, title: ' ', description: 'empty', category: '', on: true },
  ]

  it('sends only criteria that are ticked, and what continues a training', () => {
    const spec = specOf({ ...START, intent: 'run', values: { patience: 4, from_parent: 'always' }, criteria })
    expect(spec.criteria.map(({ title, description }) => [title, description])).toEqual([['speed', 'at least 2 m/s']])
    expect(spec.methodSpec).toMatchObject({ case: 'reward', value: { patience: 4, fromParent: FromParent.ALWAYS } })
    expect(runCommand(spec)).toContain('--patience 4 --from-parent always --criteria criteria.json')
    expect(JSON.parse(criteriaFile(spec))).toEqual({ criteria: [{ title: 'speed', description: 'at least 2 m/s', category: 'gait' }] })
  })

  it('states every limit of the budget in the command', () => {
    const spec = specOf({ ...START, intent: 'run', values: { budget_dollars: 2.5, budget_minutes: 90 } })
    expect(runCommand(spec)).toBe('dressage run run --env HalfCheetah-v5 --budget-dollars 2.5 --budget-minutes 90')
  })

  it('states every other setting in the command', () => {
    const spec = specOf({ ...START, intent: 'run', values: { model: ' openai/gpt-4.1' } })
    const hyperparameters = create(HyperparametersSchema, { learningRate: 0.001, hiddenSizes: [64, 32] })
    const reward = create(RewardSpecSchema, { earlyStop: false, evaluations: 4, checkpoint: CheckpointChoice.BEST, rewardSource: 'def reward', configs: [{ id: 'fast', hyperparameters }] })
    Object.assign(spec, {
      methodSpec: { case: 'reward', value: reward },
      environmentOptions: create(EnvironmentOptionsSchema, { terminateWhenUnhealthy: false }),
      roles: { judge: create(RoleModelSchema, { model: 'other/model' }) },
      pool: 'gpu',
    })
    expect(runCommand(spec)).toBe(
      'dressage run run --env HalfCheetah-v5 --env-option terminate_when_unhealthy=false --model openai/gpt-4.1 --model judge=other/model ' +
        '--reward reward.py --pool gpu --config fast:learning_rate=0.001,hidden_sizes=64x32 --no-early-stop --checkpoint best --set evaluations=4',
    )
    Object.assign(spec, { methodSpec: { case: 'reward', value: { ...reward, trainOnly: true, configs: [] } } })
    expect(runCommand(spec)).toBe('dressage train reward.py --env HalfCheetah-v5 --env-option terminate_when_unhealthy=false --pool gpu')
    Object.assign(spec, { methodSpec: { case: 'program', value: create(ProgramSpecSchema, { schedule: { start: 4, end: 64 }, budget: 1000n }) } })
    expect(runCommand(spec)).toContain('--set budget=1000 --set schedule.start=4 --set schedule.end=64')
  })

  it('is filled from a spec with the same settings', () => {
    const spec = specOf({ ...START, intent: 'run', values: { patience: 4, from_parent: 'never', budget_dollars: 2, provider_wait: 1.5, tune: false, approve: true, steps: 5000 }, criteria })
    expect(specOf(formOf(spec))).toEqual(spec)
  })

  it('keeps the settings of a session for which it has no field', () => {
    const spec = specOf({ ...START, intent: 'run', values: { seeds: 2 } })
    const reward = create(RewardSpecSchema, { seeds: 2, earlyStop: false, rewardSource: 'def reward():\n    return 1\n', configs: [{ id: 'fast', hyperparameters: { hiddenSizes: [64] } }] })
    Object.assign(spec, { methodSpec: { case: 'reward', value: reward }, pool: 'gpu', seed: 7n, judgeSource: '5', roles: { judge: create(RoleModelSchema, { model: 'other/model' }) } })
    const form = formOf(spec)
    expect(form.values).toEqual({ seeds: 2, pool: 'gpu', seed: 7, early_stop: false })
    expect(form.further.split('\n')).toEqual(expect.arrayContaining(['judge_source="5"', 'roles.judge.model=other/model']))
    expect(specOf(form)).toEqual(spec)
    expect(specOf({ ...form, values: { ...form.values, seeds: 3 } }).methodSpec.value).toMatchObject({ seeds: 3, earlyStop: false })
  })

  it('names the line of a further setting that cannot be read', () => {
    const problem = (further: string, method = 'reward') => readForm({ ...START, method, further }).problem
    expect(problem('pool=gpu\n\nseed=7\nbudget.tokens=200000')).toBeUndefined()
    expect(problem('pool=gpu\npol=gpu')).toMatch(/^Line 2, pol=gpu: .*unknown/)
    expect(problem('seed=often')).toMatch(/^Line 1, seed=often: /)
    expect(problem('gpu')).toContain('write name=value')
    expect(problem('code.episodes=20')).toContain('of the method code, and reward is chosen')
    expect(readForm({ ...START, method: 'code', further: 'code.episodes=20' }).spec?.methodSpec).toMatchObject({ case: 'code', value: { episodes: 20 } })
  })
})

describe('the graph of a lineage', () => {
  const node = (iteration: string, parent = '') => ({ iteration, parent })

  it('goes on in the row of the parent, and opens one for each further child', () => {
    const places = placesOf([node('1'), node('2', '1'), node('3', '2'), node('4', '1'), node('5', '4'), node('6', '1'), node('7', 'gone')])
    const at = (column: number, row: number) => ({ column, row })
    expect(Object.fromEntries(places)).toEqual({ 1: at(0, 0), 2: at(1, 0), 3: at(2, 0), 4: at(1, 1), 5: at(2, 1), 6: at(1, 2), 7: at(0, 3) })
  })
})

describe('the cost of models', () => {
  it('is added by key, without sessions from before and without unknown prices', () => {
    const session = (model: string, start: number, dollars?: number) =>
      create(SessionSchema, { spec: { intent: 'x', model }, startTime: { seconds: BigInt(start) }, cost: { requests: 2n, inputTokens: 5n, outputTokens: 1n, ...(dollars === undefined ? {} : { dollars }) } })
    const rows = spendBy([session('a', 100, 1), session('a', 200, 2), session('b', 300), session('b', 10, 50)], (entry) => entry.spec!.model, 50)
    expect(rows.map((row) => [row.key, row.sessions, row.dollars, row.unknown, row.tokens])).toEqual([['a', 2, 3, 0, 12], ['b', 1, 0, 1, 6]])
  })
})
