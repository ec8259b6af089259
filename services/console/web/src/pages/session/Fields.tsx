// The measured fields of the episodes that videos show, under the videos' clock.
import { Group, Loader, Text } from '@mantine/core'
import { useQueries } from '@tanstack/react-query'
import { memo, useMemo } from 'react'

import { Problem } from '../../components/basics'
import type { Marker } from '../../components/Chart'
import { readEpisode } from '../../scene/episode'
import { readRecording } from '../../scene/read'
import { Graphs } from './Graphs'

/** A video's label, and the artifact of the recording that it shows; empty: it is not known. */
export type Filmed = { label: string; recording: string }

export const Fields = memo(function Fields({ filmed, clock }: { filmed: Filmed[]; clock: Marker }) {
  const known = filmed.filter(({ recording }) => recording !== '')
  const answers = useQueries({
    queries: known.map(({ recording }) => ({
      queryKey: ['recording', recording],
      queryFn: async () => readEpisode(await readRecording(recording, 'the recording')),
      staleTime: Number.POSITIVE_INFINITY,
      structuralSharing: false as const,
      retry: 1,
    })),
  })
  const loaded = answers.map(({ data }) => data)
  const recordings = useMemo(
    () => known.flatMap(({ label }, index) => (loaded[index] === undefined ? [] : [{ label, episode: loaded[index], rows: loaded[index].steps + 1 }])),
    [known.map(({ recording }) => recording).join('\n'), loaded.filter((episode) => episode !== undefined).length],
  )
  const failed = answers.find(({ error }) => error !== null)?.error
  return (
    <>
      {failed != null && <Problem error={failed} title="The measured fields cannot be shown" />}
      {recordings.length < known.length && failed == null && (
        <Group role="status" gap="xs">
          <Loader size="xs" />
          <Text size="sm">Loading the recorded states</Text>
        </Group>
      )}
      {recordings.length > 0 && <Graphs recordings={recordings} clock={clock} />}
    </>
  )
})
