// A spec as the command that starts the same session: `dressage run`, or `dressage train` for a reward without a model.
import { type JsonObject, type JsonValue, toJson } from '@bufbuild/protobuf'

import { SESSION } from '../gen/arguments'
import type { SessionSpec } from '../gen/dressage/v1/session_pb'
import { SessionSpecSchema } from '../gen/dressage/v1/session_pb'
import { type Argument, flat, fromJsonValue, isObject, pathOf, take } from './arguments'
import { environmentId, shellWord } from './format'

/** What the command has in other words. */
const ELSEWHERE = ['intent', 'env', 'method', 'settings']

const pairs = (values: JsonValue | undefined) => flat(values ?? {}).map(([name, value]) => `${name}=${Array.isArray(value) ? value.join('x') : String(value)}`)

/** The words of an argument; sources and criteria are too long for a command, and are files of the session. */
function wordsOf(argument: Argument, value: JsonValue): string[] {
  const { flag, kind, name } = argument
  if (kind === 'source') return [flag, `${name}.py`]
  if (kind === 'criteria') return [flag, `${name}.json`]
  if (kind === 'switch') return [value === true ? flag : `--no-${flag.slice(2)}`]
  if (kind === 'fields') return pairs(value).flatMap((pair) => [flag, shellWord(pair)])
  if (kind === 'configs') {
    const configs = (Array.isArray(value) ? value : []).filter(isObject)
    return configs.flatMap(({ id, hyperparameters }) => [flag, shellWord(`${String(id)}:${pairs(hyperparameters).join(',')}`)])
  }
  return [flag, shellWord(String(fromJsonValue(argument, value)))]
}

export function runCommand(spec: SessionSpec): string {
  const known: SessionSpec = spec.methodSpec.case === 'custom' ? { ...spec, methodSpec: { case: undefined } } : spec
  const json = toJson(SessionSpecSchema, known, { useProtoFieldName: true }) as JsonObject
  const trains = take(json, ['reward', 'train_only']) === true
  const method = spec.methodSpec.case ?? 'reward'
  const words = trains ? ['dressage', 'train', 'reward.py'] : ['dressage', 'run', shellWord(spec.intent)]
  words.push('--env', shellWord(environmentId(spec.environment)))
  if (method !== 'reward') words.push('--method', method)
  for (const argument of SESSION.filter(({ name, train }) => !ELSEWHERE.includes(name) && (train || !trains))) {
    const value = take(json, pathOf(argument).split('.'))
    if (value !== undefined) words.push(...wordsOf(argument, value))
    if (argument.kind !== 'roles') continue
    for (const [role, entry] of Object.entries(isObject(json.roles) ? json.roles : {})) {
      const text = isObject(entry) ? entry[argument.name] : undefined
      if (text !== undefined) words.push(argument.flag, shellWord(`${role}=${String(text)}`))
    }
  }
  if (trains) return words.join(' ')
  for (const [name, value] of flat(json[method] ?? {})) {
    if (name !== '') words.push('--set', name.endsWith('_source') ? `${name}=@${name.replace('_source', '.py')}` : shellWord(`${name}=${String(value)}`))
  }
  return words.join(' ')
}

/** The criteria of a spec as the file that `--criteria` reads. */
export function criteriaFile(spec: SessionSpec): string {
  return `${JSON.stringify({ criteria: spec.criteria.map(({ title, description, category }) => ({ title, description, category })) }, null, 2)}\n`
}
