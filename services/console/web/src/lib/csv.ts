// Tables as CSV (RFC 4180), to save and to read.

/** Text that a spreadsheet would take for a formula gets an apostrophe in front, as intents come from anybody. */
function cell(value: string | number): string {
  const text = typeof value === 'number' ? (Number.isFinite(value) ? String(value) : '') : /^[=+\-@\t\r]/.test(value) ? `'${value}` : value
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text
}

export function toCsv(head: string[], rows: (string | number)[][]): string {
  return [head, ...rows].map((row) => `${row.map(cell).join(',')}\n`).join('')
}

/** Rows of a CSV text. Quoted cells may hold commas, quotes and lines; empty lines are left out. */
export function fromCsv(text: string): string[][] {
  const rows: string[][] = []
  let row: string[] = []
  let value = ''
  let quoted = false
  const endCell = () => {
    row.push(value)
    value = ''
  }
  const endRow = () => {
    endCell()
    if (row.length > 1 || row[0] !== '') rows.push(row)
    row = []
  }
  for (let at = text.startsWith('\uFEFF') ? 1 : 0; at < text.length; at += 1) {
    const char = text[at]!
    if (quoted) {
      if (char !== '"') value += char
      else if (text[at + 1] === '"') {
        value += '"'
        at += 1
      } else quoted = false
    } else if (char === '"' && value === '') quoted = true
    else if (char === ',') endCell()
    else if (char === '\n') endRow()
    else if (char !== '\r') value += char
  }
  if (value !== '' || row.length > 0) endRow()
  return rows
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
