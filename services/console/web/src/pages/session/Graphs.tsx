// Any recorded numbers of one or several episodes, as graphs under a shared time cursor.
import { MultiSelect, SimpleGrid, Stack } from '@mantine/core'
import { memo, useMemo, useState } from 'react'

import { Chart, Legend, type Line, type Marker, useColors } from '../../components/Chart'
import { columnsOf, type Episode } from '../../scene/episode'

const FIRST = ['x_velocity', 'z_position', 'pitch', 'reward']
const FORCE = 'contact force'
const MOST = 8

/** `rows`: how many states are shown; `force`: the sum of the contact forces in a state, in newtons, where it is known. */
export type Recording = { label: string; episode: Episode; rows: number; force?: (row: number) => number }

/** The first recording's fields can be chosen; the others are drawn where they have the same ones. */
export const Graphs = memo(function Graphs({ recordings, clock }: { recordings: Recording[]; clock: Marker }) {
  const color = useColors()
  const lead = recordings[0]!
  const columns = useMemo(() => columnsOf(lead.episode), [lead])
  const names = useMemo(() => [...(lead.force === undefined ? [] : [FORCE]), ...columns.map((column) => column.name)], [columns, lead])
  const [stored, setStored] = useState<string[] | null>(null)
  const shown = (stored ?? FIRST.filter((name) => names.includes(name)).slice(0, 2)).filter((name) => names.includes(name))
  const linesOf = (name: string): Line[] =>
    recordings.map(({ label, episode, rows, force }, index) => {
      const drawn = { label, color: color(index) }
      if (name === FORCE) return force === undefined ? { ...drawn, x: [], y: [] } : { ...drawn, x: Array.from(episode.times.subarray(0, rows)), y: Array.from({ length: rows }, (_, row) => force(row)) }
      return { ...drawn, ...columns.find((column) => column.name === name)!.values(episode) }
    })
  const lines = useMemo(() => new Map(shown.map((name) => [name, linesOf(name)])), [recordings, shown.join('\n'), color(0)])
  return (
    <Stack gap="xs">
      <MultiSelect
        label="Graphs"
        size="xs"
        searchable
        hidePickedOptions
        limit={60}
        maxValues={MOST}
        placeholder={shown.length === 0 ? 'any recorded field' : ''}
        data={names}
        value={shown}
        onChange={setStored}
      />
      {recordings.length > 1 && shown.length > 0 && <Legend lines={recordings.map(({ label }, index) => ({ label, color: color(index) }))} />}
      <SimpleGrid cols={{ base: 1, sm: 2 }} spacing="xs">
        {shown.map((name) => (
          <Chart key={name} title={name === FORCE ? `${FORCE} (N)` : name.replaceAll('_', ' ')} lines={lines.get(name)!} xLabel="seconds" height={130} sync="scene" marker={clock} />
        ))}
      </SimpleGrid>
    </Stack>
  )
})
