// A formula in LaTeX, built as elements. A formula that does not parse is shown as text.
import 'katex/dist/katex.min.css'

import { Box, Text } from '@mantine/core'
import katex from 'katex'
import { useEffect, useRef, useState } from 'react'

const MOST = 4_000

export function Formula({ latex }: { latex: string }) {
  const target = useRef<HTMLDivElement>(null)
  const [failed, setFailed] = useState(false)
  useEffect(() => {
    if (target.current === null || latex.length > MOST) {
      setFailed(true)
      return
    }
    try {
      // Inline, since only then long formulas break into lines.
      katex.render(`\\displaystyle ${latex}`, target.current, { displayMode: false, throwOnError: true, trust: false, maxExpand: 200, maxSize: 20 })
      setFailed(false)
    } catch {
      setFailed(true)
    }
  }, [latex])
  return (
    <>
      <Box ref={target} hidden={failed} className="formula" />
      {failed && (
        <Text size="sm" className="plain" ff="monospace">
          {latex.slice(0, MOST)}
        </Text>
      )}
    </>
  )
}
