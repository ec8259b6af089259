// Code with line numbers and colours; a diff of two texts. All of it is text: nothing here is ever markup.
import { Box, Group, ScrollArea, Text, useComputedColorScheme } from '@mantine/core'
import { diffLines } from 'diff'
import { useEffect, useMemo, useRef, useState } from 'react'

import { Copy } from './basics'
import type { Language } from './highlight'

type Token = { content: string; color?: string | undefined }
const MAX_COLOURED = 200_000

/** The line that executes, from 1, and how it ended. */
export type Executing = { line: number; tone: 'action' | 'true' | 'false' }

type Props = { code: string; language?: Language; label: string; maxHeight?: number; executing?: Executing | undefined }

export function CodeView({ code, language = 'python', label, maxHeight = 560, executing }: Props) {
  const viewport = useRef<HTMLDivElement>(null)
  useEffect(() => {
    // Only the code scrolls, never the page.
    const frame = viewport.current
    const line = executing === undefined ? null : frame?.querySelectorAll<HTMLElement>('.code-line')[executing.line - 1]
    if (frame === null || line == null) return
    const { top, bottom } = line.getBoundingClientRect()
    const outer = frame.getBoundingClientRect()
    if (top < outer.top || bottom > outer.bottom) frame.scrollTop += (top + bottom - outer.top - outer.bottom) / 2
  }, [executing?.line])
  const dark = useComputedColorScheme('light') === 'dark'
  const plain = useMemo<Token[][]>(() => code.replace(/\n$/, '').split('\n').map((line) => [{ content: line }]), [code])
  const [coloured, setColoured] = useState<{ code: string; lines: Token[][] } | null>(null)
  useEffect(() => {
    if (language === 'text' || code.length > MAX_COLOURED) return
    let current = true
    void import('./highlight')
      .then((module) => module.tokens(code.replace(/\n$/, ''), language, dark))
      .then((lines) => current && setColoured({ code, lines }))
      .catch(() => null) // without colours it still reads
    return () => {
      current = false
    }
  }, [code, language, dark])
  const lines = coloured?.code === code ? coloured.lines : plain
  return (
    <Box className="code" pos="relative">
      <Box pos="absolute" top={4} right={4} className="code-copy">
        <Copy value={code} label={`copy ${label}`} />
      </Box>
      <ScrollArea.Autosize mah={maxHeight} type="auto" viewportRef={viewport} viewportProps={{ tabIndex: 0, 'aria-label': label, role: 'region' }}>
        <pre>
          {lines.map((line, index) => (
            <div key={index} className={`code-line${executing?.line === index + 1 ? ` executing ${executing.tone}` : ''}`} aria-current={executing?.line === index + 1 ? 'step' : undefined}>
              <span className="code-number" aria-hidden>
                {index + 1}
              </span>
              <span>
                {line.map((token, at) => (
                  <span key={at} style={token.color === undefined ? undefined : { color: token.color }}>
                    {token.content}
                  </span>
                ))}
              </span>
            </div>
          ))}
        </pre>
      </ScrollArea.Autosize>
    </Box>
  )
}

export function DiffView({ before, after, label }: { before: string; after: string; label: string }) {
  const parts = useMemo(() => diffLines(before, after), [before, after])
  const added = parts.filter((part) => part.added).reduce((sum, part) => sum + (part.count ?? 0), 0)
  const removed = parts.filter((part) => part.removed).reduce((sum, part) => sum + (part.count ?? 0), 0)
  if (added + removed === 0) {
    return (
      <Text size="sm" c="dimmed">
        No difference.
      </Text>
    )
  }
  return (
    <Box className="code">
      <Group gap="sm" px="sm" pt={6}>
        <Text size="xs" c="teal" fw={600}>{`+${added} lines`}</Text>
        <Text size="xs" c="red" fw={600}>{`−${removed} lines`}</Text>
      </Group>
      <ScrollArea.Autosize mah={560} type="auto" viewportProps={{ tabIndex: 0, 'aria-label': label, role: 'region' }}>
        <pre>
          {parts.flatMap((part, index) =>
            part.value
              .replace(/\n$/, '')
              .split('\n')
              .map((line, at) => (
                <div key={`${index}-${at}`} className={`code-line ${part.added ? 'added' : part.removed ? 'removed' : ''}`}>
                  <span className="code-number">{part.added ? '+' : part.removed ? '−' : ' '}</span>
                  <span>{line}</span>
                </div>
              )),
          )}
        </pre>
      </ScrollArea.Autosize>
    </Box>
  )
}
