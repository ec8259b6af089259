// All environment cards: they do not change while a server runs.
import { useQuery } from '@tanstack/react-query'

import type { Environment } from '../gen/dressage/v1/environment_service_pb'
import { environments } from './clients'

async function everyEnvironment(): Promise<Environment[]> {
  const all: Environment[] = []
  let pageToken = ''
  do {
    const page = await environments.listEnvironments({ pageSize: 200, pageToken })
    all.push(...page.environments)
    pageToken = page.nextPageToken
  } while (pageToken !== '')
  return all
}

export function useEnvironments() {
  return useQuery({ queryKey: ['environments'], queryFn: everyEnvironment, staleTime: Number.POSITIVE_INFINITY })
}
