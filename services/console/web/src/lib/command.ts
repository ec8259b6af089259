// A spec as the command that starts the same session: `dressage run`, or `dressage train` for a reward without a model.
import { type DescMessage, type JsonValue, type MessageShape, toJson } from '@bufbuild/protobuf'

import type { SessionSpec } from '../gen/dressage/v1/session_pb'
import {
  CodeSpecSchema,
  EnvironmentOptionsSchema,
  HyperparametersSchema,
  ParameterSpecSchema,
  ProgramSpecSchema,
  RewardSpecSchema,
  VideoJudging,
  VideoOptionsSchema,
} from '../gen/dressage/v1/session_pb'
import { environmentId, shellWord } from './format'

/** Settings of a method that have an option of their own; the others are written `--set FIELD=VALUE`. */
const OPTIONS: Record<string, string> = {
  seeds: '--seeds',
  steps_per_member: '--steps',
  patience: '--patience',
  from_parent: '--from-parent',
  checkpoint: '--checkpoint',
  backend: '--backend',
  algorithm: '--algorithm',
  target: '--target',
}
const SWITCHES: Record<string, string> = { tune_hyperparameters: 'tune', config_variants: 'variants', early_stop: 'early-stop' }
/** Sources are too long for a command: the files of the session have them. */
const SOURCES: Record<string, string> = { reward_source: '--reward reward.py', policy_source: '--set policy_source=@policy.py' }
/** What `dressage train` takes of them. */
const TRAIN = new Set(['seeds', 'steps_per_member', 'backend', 'algorithm'])
const ENUM = /^(FROM_PARENT|CHECKPOINT_CHOICE)_/

/** The fields that are set, by their names in the API; those of a nested message as `outer.inner`. */
function fieldsOf<Schema extends DescMessage>(schema: Schema, message: MessageShape<Schema> | undefined): [string, JsonValue][] {
  if (message === undefined) return []
  const flat = (prefix: string, value: JsonValue): [string, JsonValue][] =>
    value !== null && typeof value === 'object' && !Array.isArray(value) ? Object.entries(value).flatMap(([name, inner]) => flat(`${prefix}.${name}`, inner)) : [[prefix.slice(1), value]]
  return flat('', toJson(schema, message, { useProtoFieldName: true }))
}

function methodFields({ methodSpec }: SessionSpec): [string, JsonValue][] {
  if (methodSpec.case === 'reward') return fieldsOf(RewardSpecSchema, { ...methodSpec.value, configs: [], trainOnly: false })
  if (methodSpec.case === 'parameters') return fieldsOf(ParameterSpecSchema, methodSpec.value)
  if (methodSpec.case === 'code') return fieldsOf(CodeSpecSchema, methodSpec.value)
  return methodSpec.case === 'program' ? fieldsOf(ProgramSpecSchema, methodSpec.value) : []
}

export function runCommand(spec: SessionSpec): string {
  const reward = spec.methodSpec.case === 'reward' ? spec.methodSpec.value : undefined
  const trains = reward?.trainOnly === true
  const words = trains ? ['dressage', 'train', 'reward.py'] : ['dressage', 'run', shellWord(spec.intent)]
  words.push('--env', shellWord(environmentId(spec.environment)))
  const option = (name: string, value: string | number | bigint | undefined) => {
    if (value !== undefined && value !== '' && Number(value) !== 0) words.push(name, shellWord(String(value)))
  }
  for (const [name, value] of fieldsOf(EnvironmentOptionsSchema, spec.environmentOptions)) words.push('--env-option', shellWord(`${name}=${String(value)}`))
  const method = spec.methodSpec.case ?? 'reward'
  if (method !== 'reward') option('--method', method)
  if (!trains) {
    option('--model', spec.model)
    option('--thinking', spec.thinking)
    for (const [role, { model, thinking, apiBase }] of Object.entries(spec.roles)) {
      if (model !== '') words.push('--model', shellWord(`${role}=${model}`))
      if (thinking !== '') words.push('--thinking', shellWord(`${role}=${thinking}`))
      if (apiBase !== '') words.push('--api-base', shellWord(`${role}=${apiBase}`))
    }
    option('--iterations', spec.maxIterations)
    option('--threshold', spec.passThreshold)
  }
  for (const [name, value] of methodFields(spec)) {
    const text = ENUM.test(String(value)) ? String(value).replace(ENUM, '').toLowerCase() : String(value)
    if (trains && !TRAIN.has(name)) continue
    if (name in SOURCES) words.push(SOURCES[name]!)
    else if (name in SWITCHES) words.push(`--${value === true ? '' : 'no-'}${SWITCHES[name]}`)
    else if (name in OPTIONS) words.push(OPTIONS[name]!, shellWord(text))
    else words.push('--set', shellWord(`${name}=${String(value)}`))
  }
  for (const { id, hyperparameters } of reward?.configs ?? []) {
    const pairs = fieldsOf(HyperparametersSchema, hyperparameters).map(([name, value]) => `${name}=${Array.isArray(value) ? value.join('x') : String(value)}`)
    words.push('--config', shellWord(`${id}:${pairs.join(',')}`))
  }
  option('--seed', spec.seed)
  option('--pool', spec.pool)
  if (trains) return words.join(' ')
  option('--provider-wait', spec.providerWait === undefined ? undefined : Number(spec.providerWait.seconds) / 60)
  if (spec.videoJudging !== VideoJudging.UNSPECIFIED) words.push('--video', VideoJudging[spec.videoJudging].toLowerCase())
  for (const [name, value] of fieldsOf(VideoOptionsSchema, spec.videoOptions)) words.push('--video-option', shellWord(`${name}=${String(value)}`))
  option('--budget-dollars', spec.budget?.dollars)
  option('--budget-tokens', spec.budget?.tokens)
  option('--budget-steps', spec.budget?.envSteps)
  option('--budget-minutes', spec.budget?.wallTime === undefined ? undefined : Number(spec.budget.wallTime.seconds) / 60)
  if (spec.judgeSource !== '') words.push('--judge', 'judge.py')
  if (spec.criteria.length > 0) words.push('--criteria', 'criteria.json')
  if (spec.approveBeforeEvaluation) words.push('--approve')
  return words.join(' ')
}

/** The criteria of a spec as the file that `--criteria` reads. */
export function criteriaFile(spec: SessionSpec): string {
  return `${JSON.stringify({ criteria: spec.criteria.map(({ title, description, category }) => ({ title, description, category })) }, null, 2)}\n`
}
