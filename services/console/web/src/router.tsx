// The pages by their address. Pages load when they are opened.
import { Anchor, Text } from '@mantine/core'
import { IconError404 } from '@tabler/icons-react'
import { createRootRoute, createRoute, createRouter, lazyRouteComponent, Link } from '@tanstack/react-router'

import { Empty, Problem } from './components/basics'
import { Shell } from './components/Shell'
import { type Tab, TABS } from './pages/session/tabs'
import type { SessionsSearch } from './pages/Sessions'

const root = createRootRoute({
  component: Shell,
  errorComponent: ({ error }) => <Problem error={error} />,
  notFoundComponent: () => (
    <Empty icon={<IconError404 size={24} />} title="There is no such page">
      <Text size="sm">
        See the <Anchor component={Link} to="/">sessions</Anchor>.
      </Text>
    </Empty>
  ),
})

const list = createRoute({
  getParentRoute: () => root,
  path: '/',
  component: lazyRouteComponent(() => import('./pages/Sessions'), 'Sessions'),
  validateSearch: (search: Record<string, unknown>): SessionsSearch => ({
    ...(typeof search.q === 'string' && search.q !== '' ? { q: search.q } : {}),
    ...(typeof search.state === 'number' ? { state: search.state } : {}),
    ...(typeof search.method === 'string' ? { method: search.method } : {}),
    ...(typeof search.env === 'string' ? { env: search.env } : {}),
    ...(search.deleted === true ? { deleted: true } : {}),
  }),
})

const create = createRoute({
  getParentRoute: () => root,
  path: '/new',
  component: lazyRouteComponent(() => import('./pages/NewSession'), 'NewSession'),
  validateSearch: (search: Record<string, unknown>): { from?: string } =>
    typeof search.from === 'string' ? { from: search.from } : {},
})

const compare = createRoute({
  getParentRoute: () => root,
  path: '/compare',
  component: lazyRouteComponent(() => import('./pages/compare/ComparePage'), 'ComparePage'),
  validateSearch: (search: Record<string, unknown>): { of?: string } => (typeof search.of === 'string' && search.of !== '' ? { of: search.of } : {}),
})

const benchmarks = createRoute({
  getParentRoute: () => root,
  path: '/benchmarks',
  component: lazyRouteComponent(() => import('./pages/benchmarks/BenchmarksPage'), 'BenchmarksPage'),
  validateSearch: (search: Record<string, unknown>): { deleted?: boolean } => (search.deleted === true ? { deleted: true } : {}),
})

const newBenchmark = createRoute({
  getParentRoute: () => root,
  path: '/benchmarks/new',
  component: lazyRouteComponent(() => import('./pages/benchmarks/NewBenchmark'), 'NewBenchmark'),
})

const compareBenchmarks = createRoute({
  getParentRoute: () => root,
  path: '/benchmarks/compare',
  component: lazyRouteComponent(() => import('./pages/benchmarks/BenchmarkCompare'), 'BenchmarkCompare'),
  validateSearch: (search: Record<string, unknown>): { first?: string; second?: string } => ({
    ...(typeof search.first === 'string' ? { first: search.first } : {}),
    ...(typeof search.second === 'string' ? { second: search.second } : {}),
  }),
})

const benchmark = createRoute({
  getParentRoute: () => root,
  path: '/benchmarks/$id',
  component: lazyRouteComponent(() => import('./pages/benchmarks/BenchmarkPage'), 'BenchmarkPage'),
})

const cluster = createRoute({
  getParentRoute: () => root,
  path: '/cluster',
  component: lazyRouteComponent(() => import('./pages/cluster/ClusterPage'), 'ClusterPage'),
})

const session = createRoute({
  getParentRoute: () => root,
  path: '/sessions/$id',
  component: lazyRouteComponent(() => import('./pages/session/SessionPage'), 'SessionPage'),
  validateSearch: (search: Record<string, unknown>): { tab?: Tab; iteration?: number } => ({
    ...(TABS.includes(search.tab as Tab) ? { tab: search.tab as Tab } : {}),
    ...(typeof search.iteration === 'number' && search.iteration > 0 ? { iteration: search.iteration } : {}),
  }),
})

export const router = createRouter({ routeTree: root.addChildren([list, create, compare, benchmarks, newBenchmark, compareBenchmarks, benchmark, cluster, session]), defaultPreload: 'intent' })

declare module '@tanstack/react-router' {
  interface Register {
    router: typeof router
  }
}
