// Cores, memory, GPUs and speed over the last hour, where the console knows a Prometheus server.
import { Alert, Group, SimpleGrid, Stack, Text, Title } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'

import { Chart, Legend, useColors } from '../../components/Chart'
import { Command, Panel, Problem } from '../../components/basics'

type Answer = {
  configured: boolean
  error: string
  panels: { key: string; title: string; unit: string; series: { labels: Record<string, string>; points: [number, number][] }[] }[]
}

async function read(signal: AbortSignal): Promise<Answer> {
  const answer = await fetch('/usage', { signal })
  if (!answer.ok) throw new Error(`The console answered with status ${answer.status}.`)
  return (await answer.json()) as Answer
}

const MOST_LINES = 8

export function Usage() {
  const color = useColors()
  const usage = useQuery({ queryKey: ['usage'], queryFn: ({ signal }) => read(signal), refetchInterval: 15_000, retry: 1 })
  if (usage.error !== null) return <Problem error={usage.error} title="The use cannot be read" />
  if (usage.data === undefined) return null
  if (!usage.data.configured) {
    return (
      <Panel title="Cores, memory and GPUs" pad="sm">
        <Text size="sm" c="dimmed" mb={6}>
          Their use over time comes from a Prometheus server. Name it to the console:
        </Text>
        <Command text={"DRESSAGE_CONSOLE_PROMETHEUS_URL=http://prometheus:9090\nDRESSAGE_CONSOLE_PROMETHEUS_SELECTOR='namespace=\"dressage\"'"} label="copy the settings" />
      </Panel>
    )
  }
  const now = Date.now() / 1000
  return (
    <Stack gap="sm">
      <Group justify="space-between">
        <Title order={2} size="h5">
          The last hour
        </Title>
        <Text size="xs" c="dimmed">
          by Prometheus; minutes before now
        </Text>
      </Group>
      {usage.data.error !== '' && <Alert color="yellow" p="xs">{usage.data.error}</Alert>}
      {usage.data.panels.length === 0 && usage.data.error === '' && (
        <Text size="sm" c="dimmed">
          Prometheus has no figures of this installation. Check DRESSAGE_CONSOLE_PROMETHEUS_SELECTOR.
        </Text>
      )}
      <SimpleGrid cols={{ base: 1, md: 2 }}>
        {usage.data.panels.map((panel) => {
          const scale = panel.unit === 'bytes' ? 1e9 : 1
          const lines = panel.series.slice(0, MOST_LINES).map((series, index) => ({
            label: Object.values(series.labels).join(', ') || panel.title,
            x: series.points.map(([time]) => Math.round(((time - now) / 60) * 10) / 10),
            y: series.points.map(([, value]) => value / scale),
            color: color(index),
          }))
          return (
            <Stack key={panel.key} gap={6}>
              <Chart title={panel.unit === 'bytes' ? `${panel.title}, GB` : panel.title} lines={lines} xLabel="minutes" sync="usage" />
              <Legend lines={lines} />
            </Stack>
          )
        })}
      </SimpleGrid>
    </Stack>
  )
}
