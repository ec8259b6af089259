// Programs of Karel's language with one statement a line, indented.

const BLOCKS = /^(?:m|w|i|e|r)\($/
const ENDS = /^(?:m|w|i|e|r)\)$/

/** A program on several lines; a text of another language is left as it is. */
export function formatProgram(program: string): string {
  if (!program.startsWith('DEF ') || program.includes('\n')) return program
  const lines: string[] = []
  let line: string[] = []
  let depth = 0
  let condition = false
  const end = () => {
    if (line.length > 0) lines.push('  '.repeat(depth) + line.join(' '))
    line = []
  }
  for (const word of program.split(/\s+/).filter(Boolean)) {
    if (word === 'c(') condition = true
    if (word === 'c)') condition = false
    if (condition || word === 'c)' || word === 'DEF' || word === 'run' || /^R=\d+$/.test(word)) line.push(word)
    else if (BLOCKS.test(word)) {
      line.push(word)
      end()
      depth += 1
    } else if (ENDS.test(word)) {
      end()
      depth = Math.max(0, depth - 1)
      line.push(word)
      end()
    } else if (/^(?:IF|IFELSE|WHILE|REPEAT|ELSE)$/.test(word)) {
      end()
      line.push(word)
    } else {
      end()
      line.push(word)
      end()
    }
  }
  end()
  return `${lines.join('\n')}\n`
}
