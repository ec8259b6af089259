// What the pages of benchmarks read. A running benchmark is read again every second.
import { useQuery } from '@tanstack/react-query'

import { benchmarks } from '../../api/clients'
import { everySession } from '../../api/everySession'
import type { Benchmark } from '../../gen/dressage/v1/benchmark_service_pb'
import { isDone } from '../../lib/benchmark'

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
      return new Set((await everySession(false, signal)).map((session) => session.name))
    },
    staleTime: 5_000,
  })
}

/** A benchmark is in the trash when all its sessions are. The server removes it with them. */
export function inTrash(benchmark: Benchmark, kept: Set<string> | undefined): boolean {
  const started = benchmark.cases.filter((entry) => entry.session !== '')
  return kept !== undefined && isDone(benchmark) && started.length > 0 && started.every((entry) => !kept.has(entry.session))
}
