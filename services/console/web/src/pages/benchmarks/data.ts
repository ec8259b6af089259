// What the pages of benchmarks read. A running benchmark is read again every second, a large one every five.
import { keepPreviousData, useQuery } from '@tanstack/react-query'

import { benchmarks } from '../../api/clients'
import { everySession } from '../../api/everySession'
import type { Benchmark } from '../../gen/dressage/v1/benchmark_service_pb'
import { isDone } from '../../lib/benchmark'

const PAGE_SIZE = 200
const MOST_BENCHMARKS = 1_000
const LARGE = 200

export function useBenchmarks() {
  return useQuery({
    queryKey: ['benchmarks'],
    queryFn: ({ signal }) => everyBenchmark(signal),
    refetchInterval: 3_000,
  })
}

async function everyBenchmark(signal: AbortSignal): Promise<Benchmark[]> {
  const all: Benchmark[] = []
  let pageToken = ''
  do {
    const page = await benchmarks.listBenchmarks({ pageSize: PAGE_SIZE, pageToken }, { signal })
    all.push(...page.benchmarks)
    pageToken = page.nextPageToken
  } while (pageToken !== '' && all.length < MOST_BENCHMARKS)
  return all
}

/** A whole benchmark; the list has only its summary. No name: none is read. */
export function useBenchmark(name: string) {
  return useQuery({
    queryKey: ['benchmark', name],
    queryFn: ({ signal }) => benchmarks.getBenchmark({ name }, { signal }),
    enabled: name !== '',
    refetchInterval: ({ state: { data } }) => (data === undefined ? 1_000 : isDone(data) ? false : data.cases.length > LARGE ? 5_000 : 1_000),
  })
}

/** Names of the sessions that exist and are not in the trash. */
export async function readKept(signal?: AbortSignal): Promise<Set<string>> {
  return new Set((await everySession(false, signal)).map((session) => session.name))
}

/** The same, read again whenever benchmarks have started another session: otherwise new sessions would look deleted. */
export function useKept(benchmarks: Benchmark[]) {
  const started = benchmarks.reduce((sum, benchmark) => sum + startedOf(benchmark).length, 0)
  return useQuery({
    queryKey: ['sessions', 'kept', started],
    queryFn: ({ signal }) => readKept(signal),
    placeholderData: keepPreviousData,
    staleTime: 5_000,
  })
}

/** Names of the sessions that a benchmark has started. */
export function startedOf(benchmark: Benchmark): string[] {
  return benchmark.cases.map((entry) => entry.session).filter((name) => name !== '')
}

/** A benchmark is in the trash when all its sessions are. The server removes it with them. */
export function inTrash(benchmark: Benchmark, kept: Set<string> | undefined): boolean {
  const started = startedOf(benchmark)
  return kept !== undefined && isDone(benchmark) && started.length > 0 && started.every((name) => !kept.has(name))
}
