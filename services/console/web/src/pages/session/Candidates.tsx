// Every candidate of an iteration: what it scored, where it came from, and what it was.
import { Badge, Box, Button, Group, Pagination, Stack, Table, Text, Tooltip } from '@mantine/core'
import { useState } from 'react'

import { CodeView } from '../../components/CodeView'
import { Panel, Plain } from '../../components/basics'
import type { Iteration } from '../../gen/dressage/v1/session_pb'
import { short } from '../../lib/format'
import { formatProgram } from '../../lib/program'

type Row = { number: number; mean: number | null; returns: number[]; origin: string; note: string; failure: string; source: string; language: 'python' | 'json' | 'text' }
const PER_PAGE = 25

export function rowsOf({ proposal }: Iteration): { rows: Row[]; chosen: number } {
  if (proposal.case === 'code') {
    const rows = proposal.value.candidates.map((entry, index) => ({
      number: index + 1,
      mean: entry.meanReturn ?? null,
      returns: entry.returns,
      origin: [entry.repairs > 0 ? `${entry.repairs} ${entry.repairs === 1 ? 'repair' : 'repairs'}` : '', entry.duplicate ? 'evaluated before' : '', entry.actSeconds > 0 ? `${short(entry.actSeconds * 1e6)} µs an action` : ''].filter(Boolean).join(', '),
      note: entry.feedback.join('\n'),
      failure: entry.failure?.message ?? '',
      source: entry.source,
      language: 'python' as const,
    }))
    return { rows, chosen: proposal.value.chosen }
  }
  if (proposal.case === 'parameters') {
    const rows = proposal.value.candidates.map((entry, index) => ({
      number: index + 1,
      mean: entry.meanReturn,
      returns: entry.returns,
      origin: [entry.origin, entry.rule, entry.duplicateOf > 0 ? `as in iteration ${entry.duplicateOf}` : ''].filter(Boolean).join(', '),
      note: entry.explanation,
      failure: '',
      source: entry.values.map((value) => short(value, 5)).join(', '),
      language: 'text' as const,
    }))
    return { rows, chosen: proposal.value.chosen }
  }
  if (proposal.case === 'program') {
    const rows = proposal.value.candidates.map((entry, index) => ({
      number: index + 1,
      mean: entry.meanReturn,
      returns: [],
      origin: [entry.evaluated > 0n ? `program ${Number(entry.evaluated).toLocaleString('en')} of the search` : '', entry.duplicateOf > 0 ? `as in iteration ${entry.duplicateOf}` : ''].filter(Boolean).join(', '),
      note: '',
      failure: '',
      source: formatProgram(entry.program),
      language: 'text' as const,
    }))
    return { rows, chosen: proposal.value.chosen }
  }
  return { rows: [], chosen: 0 }
}

export function Candidates({ iteration }: { iteration: Iteration }) {
  const { rows, chosen } = rowsOf(iteration)
  const [open, setOpen] = useState<number | null>(null)
  const [page, setPage] = useState(1)
  if (rows.length === 0) return null
  const sorted = rows.toSorted((a, b) => (b.mean ?? Number.NEGATIVE_INFINITY) - (a.mean ?? Number.NEGATIVE_INFINITY) || a.number - b.number)
  const shown = rows.find((row) => row.number === open)
  // Searches without a model record no single episodes.
  const played = rows.some((row) => row.returns.length > 0 || row.failure !== '')
  return (
    <Panel title="Candidates" pad="sm" right={<Text size="xs" c="dimmed" className="numbers">{`${rows.length}, the best first`}</Text>}>
      <Stack gap="sm">
        <Table.ScrollContainer minWidth={620}>
          <Table fz="sm" verticalSpacing={6} highlightOnHover aria-label="Candidates">
            <Table.Thead>
              <Table.Tr>
                <Table.Th ta="right">#</Table.Th>
                <Table.Th ta="right">Mean return</Table.Th>
                {played && <Table.Th>Episodes</Table.Th>}
                <Table.Th>Origin</Table.Th>
                <Table.Th aria-label="Show" />
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {sorted.slice((page - 1) * PER_PAGE, page * PER_PAGE).map((row) => (
                <Table.Tr key={row.number}>
                  <Table.Td ta="right" className="numbers">
                    {row.number}
                  </Table.Td>
                  <Table.Td ta="right" className="numbers" fw={row.number === chosen ? 600 : 400}>
                    {row.mean === null ? '–' : short(row.mean)}
                  </Table.Td>
                  {played && (
                    <Table.Td maw={260}>
                      {row.failure !== '' ? (
                        <Tooltip label={row.failure.slice(0, 600)} multiline maw={380}>
                          <Text size="xs" c="red" className="one-line" tabIndex={0}>
                            {row.failure}
                          </Text>
                        </Tooltip>
                      ) : (
                        <Text size="xs" c="dimmed" className="numbers one-line">
                          {row.returns.map((value) => short(value)).join(', ')}
                        </Text>
                      )}
                    </Table.Td>
                  )}
                  <Table.Td maw={260}>
                    <Group gap={6} wrap="nowrap">
                      {row.number === chosen && <Badge size="xs" className="whole">chosen</Badge>}
                      <Text size="xs" className="one-line" title={row.origin}>
                        {row.origin}
                      </Text>
                    </Group>
                  </Table.Td>
                  <Table.Td ta="right">
                    <Button size="compact-xs" variant="subtle" aria-expanded={open === row.number} aria-label={`${open === row.number ? 'close' : 'show'} candidate ${row.number}`} onClick={() => setOpen(open === row.number ? null : row.number)}>
                      {open === row.number ? 'close' : 'show'}
                    </Button>
                  </Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        </Table.ScrollContainer>
        {rows.length > PER_PAGE && <Pagination size="sm" total={Math.ceil(rows.length / PER_PAGE)} value={page} onChange={setPage} />}
        {shown !== undefined && (
          <Box>
            {shown.note !== '' && <Plain mb="xs">{shown.note}</Plain>}
            <CodeView code={shown.source} language={shown.language} label={`candidate ${shown.number}`} maxHeight={420} />
          </Box>
        )}
      </Stack>
    </Panel>
  )
}
