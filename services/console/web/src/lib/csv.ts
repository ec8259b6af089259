// Tables as CSV (RFC 4180), to save and to read.
import Papa from 'papaparse'

/** Text that a spreadsheet would take for a formula gets an apostrophe in front, as intents come from anybody. */
function cell(value: string | number): string {
  if (typeof value === 'number') return Number.isFinite(value) ? String(value) : ''
  return /^[=+\-@\t\r]/.test(value) ? `'${value}` : value
}

export function toCsv(head: string[], rows: (string | number)[][]): string {
  return `${Papa.unparse([head, ...rows.map((row) => row.map(cell))], { newline: '\n' })}\n`
}

/** Rows of a CSV text. Quoted cells may hold commas, quotes and lines; empty lines are left out. */
export function fromCsv(text: string): string[][] {
  return Papa.parse<string[]>(text, { delimiter: ',', skipEmptyLines: true }).data
}

/** Offer a text as a file to save. */
export function save(name: string, text: string, type = 'text/csv'): void {
  const address = URL.createObjectURL(new Blob([text], { type: `${type};charset=utf-8` }))
  const link = document.createElement('a')
  link.href = address
  link.download = name
  link.click()
  setTimeout(() => URL.revokeObjectURL(address), 10_000)
}
