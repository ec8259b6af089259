// What the pages of benchmarks read. A running benchmark is read again every second.
import { useQuery } from '@tanstack/react-query'

import { benchmarks, sessions } from '../../api/clients'
import type { Benchmark } from '../../gen/dressage/v1/benchmark_service_pb'
import { isDone } from '../../lib/benchmark'

const PAGE_SIZE = 1000
const MOST = 5_000
const MOST_BENCHMARKS = 200

export function useBenchmarks() {
  return useQuery({
    queryKey: ['benchmarks'],
    queryFn: async ({ signal }) => (await benchmarks.listBenchmarks({ pageSize: MOST_BENCHMARKS }, { signal })).benchmarks,
    refetchInterval: 3_000,
  })
}

export function useBenchmark(name: string) {
  return useQuery({
    queryKey: ['benchmark', name],
    queryFn: ({ signal }) => benchmarks.getBenchmark({ name }, { signal }),
    refetchInterval: (query) => (query.state.data !== undefined && isDone(query.state.data) ? false : 1_000),
  })
}

/** Names of the sessions that exist and are not in the trash. */
export function useKept() {
  return useQuery({
    queryKey: ['sessions', 'kept'],
    queryFn: async ({ signal }) => {
      const kept = new Set<string>()
      let pageToken = ''
      do {
        const page = await sessions.listSessions({ pageSize: PAGE_SIZE, pageToken }, { signal })
        for (const session of page.sessions) kept.add(session.name)
        pageToken = page.nextPageToken
      } while (pageToken !== '' && kept.size < MOST)
      return kept
    },
    staleTime: 5_000,
  })
}

/** A benchmark is in the trash when all its sessions are. The server removes it with them. */
export function inTrash(benchmark: Benchmark, kept: Set<string> | undefined): boolean {
  const started = benchmark.cases.filter((entry) => entry.session !== '')
  return kept !== undefined && isDone(benchmark) && started.length > 0 && started.every((entry) => !kept.has(entry.session))
}
