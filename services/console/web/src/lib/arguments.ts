// Arguments of a session as the command line, Python and the forms have them, and their values in the JSON of a spec.
import type { JsonObject, JsonValue } from '@bufbuild/protobuf'

import { METHODS, SESSION } from '../gen/arguments'

export type Argument = (typeof SESSION)[number]
/** What a form holds for an argument. */
export type Value = string | number | boolean

const KINDS = ['choice', 'count', 'integer', 'minutes', 'number', 'roles', 'switch', 'text']
const ELSEWHERE = ['intent', 'env', 'method', 'api_base']
/** Arguments with a field in forms. */
export const FIELDS = SESSION.filter((argument) => KINDS.includes(argument.kind) && !ELSEWHERE.includes(argument.name))

/** The field of the spec that an argument sets. */
export const pathOf = (argument: Argument) => argument.paths[0] ?? argument.name

/** Whether an argument is a setting of the method, or of all methods. */
export function fits(argument: Argument, method: string): boolean {
  const [first = ''] = pathOf(argument).split('.')
  return first === method || !METHODS.includes(first)
}

/** The name for people: `budget_steps` is "Budget steps". */
export const labelOf = ({ name }: Argument) => `${name[0]?.toUpperCase() ?? ''}${name.slice(1).replaceAll('_', ' ')}`

export function toJsonValue(argument: Argument, value: Value): JsonValue {
  if (argument.kind === 'minutes') return `${Math.round(Number(value) * 60_000) / 1000}s`
  if (argument.prefix !== '') return `${argument.prefix}${String(value).toUpperCase()}`
  return typeof value === 'string' ? value.trim() : value
}

export function fromJsonValue(argument: Argument, value: JsonValue): Value {
  if (argument.kind === 'minutes') return Number.parseFloat(String(value)) / 60
  if (argument.kind === 'count') return Number(value)
  if (typeof value === 'string') return argument.prefix === '' ? value : value.replace(argument.prefix, '').toLowerCase()
  return typeof value === 'number' || typeof value === 'boolean' ? value : ''
}

export const isObject = (value: JsonValue | undefined): value is JsonObject => typeof value === 'object' && value !== null && !Array.isArray(value)

/** Sets the value at a path, and makes the objects on the way. */
export function put(target: JsonObject, path: string[], value: JsonValue): void {
  const [name = '', ...rest] = path
  if (rest.length === 0) {
    target[name] = value
    return
  }
  const inner = Object.hasOwn(target, name) ? target[name] : undefined
  const next = isObject(inner) ? inner : {}
  target[name] = next
  put(next, rest, value)
}

/** Removes the value at a path and returns it; undefined if there is none. */
export function take(target: JsonObject, path: string[]): JsonValue | undefined {
  const [name = '', ...rest] = path
  const value = Object.hasOwn(target, name) ? target[name] : undefined
  if (rest.length > 0) return isObject(value) ? take(value, rest) : undefined
  delete target[name]
  return value
}

/** The values of an object by their paths. */
export function flat(value: JsonValue, path = ''): [string, JsonValue][] {
  if (!isObject(value)) return [[path, value]]
  return Object.entries(value).flatMap(([name, inner]) => flat(inner, path === '' ? name : `${path}.${name}`))
}
