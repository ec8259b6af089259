import { describe, expect, it } from 'vitest'

import { fromCsv, toCsv } from '../../src/lib/csv'

describe('CSV', () => {
  it('reads what it wrote, with commas, quotes, lines and other scripts', () => {
    const rows = [['a,b', 'say "hi"'], ['two\nlines', 'größer → 大'], ['', '  spaces ']]
    expect(fromCsv(toCsv(['x', 'y'], rows))).toEqual([['x', 'y'], ...rows])
  })

  it('reads the line ends and the mark of spreadsheets, and leaves out empty lines', () => {
    expect(fromCsv('\uFEFFa,b\r\n1,"2\r\n3"\r\n\r\n4,5')).toEqual([['a', 'b'], ['1', '2\r\n3'], ['4', '5']])
  })

  it('keeps spreadsheets from computing a text', () => {
    expect(toCsv(['intent'], [['=1+1'], ['@x'], ['-hop']])).toBe("intent\n'=1+1\n'@x\n'-hop\n")
    expect(toCsv(['n'], [[-3], [Number.NaN]])).toBe('n\n-3\n\n')
  })
})
