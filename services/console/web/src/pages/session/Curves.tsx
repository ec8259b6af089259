// Curves of all members while they train, and of searches. Any metric can be added.
import { Button, Checkbox, Group, Popover, ScrollArea, SimpleGrid, Stack, Text, TextInput } from '@mantine/core'
import { useLocalStorage } from '@mantine/hooks'
import { IconChartLine, IconChevronDown } from '@tabler/icons-react'
import { useState } from 'react'

import { Chart, Legend, type Line, useColors } from '../../components/Chart'
import { Empty } from '../../components/basics'
import { short } from '../../lib/format'
import { stack } from '../../lib/stack'
import type { IterationLive, MemberCurves } from '../../live/model'
import type { TabProps } from './tabs'

const DEFAULTS = ["judge's score", 'evaluation/proposed return', 'evaluation/environment return', 'episode_return', 'entropy', 'approx_kl', 'value_loss', 'explained_variance']

const TITLES: Record<string, string> = {
  episode_return: 'episode return in training',
  environment_return: "environment's return in training",
  approx_kl: 'approximate KL divergence',
  value_loss: 'value loss',
  policy_loss: 'policy loss',
  explained_variance: 'explained variance',
}
export const metricTitle = (name: string) => TITLES[name] ?? name.replace(/^evaluation\//, 'evaluation: ').replace(/^term\//, 'reward term: ').replaceAll('_', ' ')

export function linesOf(at: IterationLive | undefined, metric: string, color: (index: number) => string): Line[] {
  return [...(at?.members.values() ?? [])].map((member: MemberCurves, index) => {
    const series = member.metrics.get(metric) ?? { x: [], y: [] }
    return { label: member.id, x: series.x, y: series.y, color: color(index), dots: metric.startsWith('evaluation/') || metric === "judge's score" }
  })
}

export function Curves({ session, live, iteration }: TabProps) {
  const color = useColors()
  const at = live.session.iterations.get(iteration)
  const names = live.session.metricNames(iteration)
  const [stored, setStored] = useLocalStorage<string[]>({ key: 'dressage-metrics', defaultValue: DEFAULTS, getInitialValueInEffect: false })
  const [filter, setFilter] = useState('')
  const toggle = (name: string) => setStored(stored.includes(name) ? stored.filter((entry) => entry !== name) : [...stored, name])
  const terms = names.filter((name) => name.startsWith('term/'))
  const shown = stored.filter((name) => names.includes(name))
  const goal = session.method === 'reward' ? session.spec?.passThreshold : undefined
  const search = at?.search
  const candidates = at?.candidates.filter((entry) => entry.mean !== null) ?? []
  if (names.length === 0 && (search?.x.length ?? 0) === 0 && candidates.length <= 1) {
    return (
      <Empty icon={<IconChartLine size={22} />} title="No curves yet">
        They appear here as soon as training or a search begins.
      </Empty>
    )
  }
  const members = [...(at?.members.values() ?? [])]
  const until = Math.max(0, ...members.map((member) => member.steps))
  return (
    <Stack>
      {names.length > 0 && (
        <Group justify="space-between" align="center">
          <Legend lines={members.map((member, index) => ({ label: member.id, color: color(index) }))} />
          <Popover position="bottom-end" withinPortal shadow="md" width={320}>
            <Popover.Target>
              <Button variant="default" size="xs" rightSection={<IconChevronDown size={15} />}>
                {`Metrics: ${shown.length} of ${names.length}`}
              </Button>
            </Popover.Target>
            <Popover.Dropdown>
              <Stack gap="xs">
                <TextInput aria-label="Search metrics" placeholder="Search" size="xs" value={filter} onChange={(event) => setFilter(event.currentTarget.value)} data-autofocus />
                <ScrollArea.Autosize mah={320}>
                  <Stack gap={6}>
                    {names
                      .filter((name) => metricTitle(name).toLowerCase().includes(filter.toLowerCase()))
                      .map((name) => (
                        <Checkbox key={name} size="xs" label={metricTitle(name)} checked={shown.includes(name)} onChange={() => toggle(name)} />
                      ))}
                  </Stack>
                </ScrollArea.Autosize>
                <Button size="compact-xs" variant="subtle" onClick={() => setStored(DEFAULTS)}>
                  The usual ones
                </Button>
              </Stack>
            </Popover.Dropdown>
          </Popover>
        </Group>
      )}
      <SimpleGrid cols={{ base: 1, sm: 2, lg: 3 }} spacing="sm">
        {search !== undefined && search.x.length > 0 && (
          <Chart title="best score of the search" lines={[{ label: 'best', ...search, color: color(0), dots: search.x.length < 60 }]} xLabel="candidates" sync="search" />
        )}
        {candidates.length > 1 && (
          <Chart
            title="mean return of candidates"
            lines={[{ label: 'candidate', x: candidates.map((_, index) => index + 1), y: candidates.map((entry) => entry.mean ?? 0), color: color(1), dots: true }]}
            xLabel="candidates"
            sync="candidates"
            whole
          />
        )}
        {shown.map((name) => (
          <Chart key={name} title={metricTitle(name)} lines={linesOf(at, name, color)} xLabel="environment steps" until={until} goal={name === "judge's score" ? goal : undefined} />
        ))}
        {terms.length > 0 &&
          members.map((member) => (
            <Chart
              key={`terms ${member.id}`}
              title={`reward terms stacked, ${member.id}`}
              lines={stack(terms.map((term) => member.metrics.get(term) ?? { x: [], y: [] })).map((area, index) => ({ label: terms[index]!.slice(5), ...area, color: color(index) }))}
              xLabel="steps"
              until={until}
              legend
            />
          ))}
      </SimpleGrid>
      {members.length > 0 && (
        <Text size="xs" c="dimmed" className="numbers">
          {members.map((member) => `${member.id}: ${short(member.steps, 6)} of ${short(member.targetSteps, 6)} steps`).join(' · ')}
        </Text>
      )}
    </Stack>
  )
}
