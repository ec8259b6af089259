// The difference between two proposals, of any sessions.
import { Group, Select, Stack, Text } from '@mantine/core'
import { useState } from 'react'

import { DiffView } from '../../components/CodeView'
import { Panel } from '../../components/basics'
import { sourceOf } from '../session/data'
import { iterationOf } from './facts'
import type { Entry } from './Scores'

export function Differences({ entries }: { entries: Entry[] }) {
  const [from, setFrom] = useState<string | null>(null)
  const [to, setTo] = useState<string | null>(null)
  const texts = entries.flatMap((entry) => {
    const iteration = iterationOf(entry.item, entry.source)
    const source = sourceOf(iteration)
    return source === null ? [] : [{ label: entry.label, text: source.text, title: `${source.title} of ${entry.item.session}, iteration ${iteration?.number}` }]
  })
  if (texts.length < 2) return null
  const before = texts.find((text) => text.label === from) ?? texts[0]!
  const after = texts.find((text) => text.label === to && text !== before) ?? texts.find((text) => text !== before)!
  const options = (other: string) => texts.filter((text) => text.label !== other).map((text) => text.label)
  return (
    <Panel
      title="Difference of the proposals"
      right={
        <Group gap="xs">
          <Select aria-label="Before" size="xs" w={200} data={options(after.label)} value={before.label} onChange={setFrom} allowDeselect={false} />
          <Text size="xs" c="dimmed">
            to
          </Text>
          <Select aria-label="After" size="xs" w={200} data={options(before.label)} value={after.label} onChange={setTo} allowDeselect={false} />
        </Group>
      }
    >
      <Stack gap="xs">
        <Text size="xs" c="dimmed" className="plain">{`From ${before.title} to ${after.title}`}</Text>
        <DiffView before={before.text} after={after.text} label={`Difference from ${before.label} to ${after.label}`} />
      </Stack>
    </Panel>
  )
}
