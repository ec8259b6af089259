// The curves of all items on one chart: of a metric over training, of searches, and scores by iteration.
import { Group, Select, SimpleGrid, Stack, Text } from '@mantine/core'
import { useState } from 'react'

import { Chart, Legend, type Line } from '../../components/Chart'
import { Panel } from '../../components/basics'
import { curveOf, searchCurve } from '../../lib/compare'
import { metricTitle } from '../session/Curves'
import { bestConfigOf, iterationOf } from './facts'
import type { Entry } from './Scores'

const FIRST = ["judge's score", 'evaluation/environment return', 'evaluation/proposed return', 'episode_return']

/** What a search of the method counts. */
const unitOf = (method: string) => (method === 'program' ? 'evaluated programs' : 'episodes')

export function Curves({ entries }: { entries: Entry[] }) {
  const [chosen, setChosen] = useState<string | null>(null)
  const known = entries.map((entry) => ({ ...entry, iteration: iterationOf(entry.item, entry.source) }))
  const names = [...new Set(known.flatMap(({ live, iteration }) => live?.metricNames(iteration?.number ?? 0) ?? []))]
  const metric = chosen !== null && names.includes(chosen) ? chosen : (FIRST.find((name) => names.includes(name)) ?? names[0])
  const trained: Line[] =
    metric === undefined
      ? []
      : known.map(({ item, label, color, live, iteration }) => {
          const band = curveOf(live?.iterations.get(iteration?.number ?? 0), item.member, bestConfigOf(iteration), metric)
          const wide = band.low.some((low, index) => low < band.high[index]!)
          return { label, x: band.x, y: band.y, color, dots: band.x.length < 40, ...(wide ? { low: band.low, high: band.high } : {}) }
        })
  const searches = known
    .filter(({ source }) => source !== undefined && source.session.method !== 'reward')
    .map(({ item, label, color, source }) => {
      const iterations = source!.iterations.filter((entry) => item.iteration === 0 || entry.number === item.iteration)
      const curve = searchCurve(iterations)
      return { unit: unitOf(source!.session.method), label, ...curve, color, dots: curve.x.length < 40 }
    })
    .filter((line) => line.x.length > 0)
  // Episodes and programs are no common axis.
  const units = [...new Set(searches.map((line) => line.unit))]
  const wholes = known
    .filter(({ item, source }) => item.iteration === 0 && (source?.iterations.length ?? 0) > 1)
    .map(({ label, color, source }) => {
      const rated = source!.iterations.filter((entry) => entry.score !== undefined)
      return { label, x: rated.map((entry) => entry.number), y: rated.map((entry) => entry.score!), color, dots: true }
    })
  if (metric === undefined && searches.length === 0 && wholes.length === 0) return null
  return (
    <Panel
      title="Curves"
      right={
        metric !== undefined && (
          <Select aria-label="Metric" size="xs" w={260} searchable allowDeselect={false} data={names.map((name) => ({ value: name, label: metricTitle(name) }))} value={metric} onChange={setChosen} />
        )
      }
    >
      <Stack gap="sm">
        <Legend lines={entries.map((entry) => ({ label: entry.label, color: entry.color }))} />
        {metric !== undefined && <Chart title={metricTitle(metric)} lines={trained} xLabel="environment steps" height={320} sync="compare" />}
        {(searches.length > 0 || wholes.length > 0) && (
          <SimpleGrid cols={{ base: 1, md: units.length + Number(wholes.length > 0) > 1 ? 2 : 1 }}>
            {units.map((unit) => (
              <Chart key={unit} title="best score of the search" lines={searches.filter((line) => line.unit === unit)} xLabel={unit} sync={`compare-search-${unit}`} height={260} />
            ))}
            {wholes.length > 0 && <Chart title="score by iteration" lines={wholes} xLabel="iterations" sync="compare-iterations" height={260} whole />}
          </SimpleGrid>
        )}
        {trained.some((line) => line.low !== undefined) && (
          <Group>
            <Text size="xs" c="dimmed">
              A line is the mean over the seeds of the best config, its band their range.
            </Text>
          </Group>
        )}
      </Stack>
    </Panel>
  )
}
