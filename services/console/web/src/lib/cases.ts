// The cases of a benchmark from a file: CSV with the columns of `dressage bench`, or a JSON list.
import { fromCsv } from './csv'

export type Case = { intent: string; environment: string; category: string; difficulty: string }
export type Cases = { cases: Case[]; problems: string[] }

export const COLUMNS = ['env_id', 'instruction', 'category', 'difficulty'] as const
export const MOST_CASES = 5000
const FIELDS = ['intent', 'environment', 'category', 'difficulty']
const MOST_PROBLEMS = 5

export function environmentName(id: string): string {
  return id.startsWith('environments/') ? id : `environments/${id}`
}

/**
 * The cases of a text, and what is wrong with it; with a problem there are no cases.
 *
 * @param known names of the server's environments; none: they are not checked.
 */
export function parseCases(text: string, known: readonly string[] = []): Cases {
  if (text.trim() === '') return { cases: [], problems: [] }
  const { cases, problems } = /^\s*[[{]/.test(text) ? fromJson(text) : fromTable(text)
  if (cases.length > MOST_CASES) problems.push(`${cases.length} cases; expected at most ${MOST_CASES}.`)
  cases.forEach((entry, index) => {
    if (known.length > 0 && !known.includes(entry.environment)) problems.push(`case ${index + 1}: unknown environment ${entry.environment.replace(/^environments\//, '').slice(0, 80)}.`)
  })
  const more = problems.length - MOST_PROBLEMS
  return problems.length === 0 ? { cases, problems } : { cases: [], problems: [...problems.slice(0, MOST_PROBLEMS), ...(more > 0 ? [`and ${more} more.`] : [])] }
}

function fromTable(text: string): Cases {
  const [head = [], ...rows] = fromCsv(text)
  const names = head.map((name) => name.trim())
  const place = (name: string) => names.indexOf(name)
  const missing = COLUMNS.slice(0, 2).filter((name) => place(name) < 0)
  if (missing.length > 0) return { cases: [], problems: [`column ${missing[0]}: missing; expected a first line with ${COLUMNS.join(',')}.`] }
  const problems: string[] = []
  const cases = rows.map((row, index) => {
    const [environment, intent, category, difficulty] = COLUMNS.map((name) => (row[place(name)] ?? '').trim())
    if (intent === '' || environment === '') problems.push(`case ${index + 1}: ${intent === '' ? 'instruction' : 'env_id'} is missing.`)
    return { intent: intent!, environment: environmentName(environment!), category: category!, difficulty: difficulty! }
  })
  if (cases.length === 0) problems.push('no cases; expected at least one line after the first.')
  return { cases, problems }
}

function fromJson(text: string): Cases {
  let entries: unknown
  try {
    entries = JSON.parse(text)
  } catch (error) {
    return { cases: [], problems: [`not JSON: ${(error as Error).message}`] }
  }
  if (!Array.isArray(entries) || entries.length === 0) return { cases: [], problems: ['expected a JSON list of at least one case.'] }
  const problems: string[] = []
  const cases = entries.map((entry: unknown, index) => {
    const fields = (typeof entry === 'object' && entry !== null ? entry : {}) as Record<string, unknown>
    const valid = Object.entries(fields).every(([name, value]) => FIELDS.includes(name) && typeof value === 'string') && fields.intent && fields.environment
    if (!valid) problems.push(`case ${index + 1}: expected texts for intent and environment, and optionally category and difficulty.`)
    return { intent: String(fields.intent ?? ''), environment: environmentName(String(fields.environment ?? '')), category: String(fields.category ?? ''), difficulty: String(fields.difficulty ?? '') }
  })
  return { cases, problems }
}
