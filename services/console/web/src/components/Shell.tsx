// The frame of every page: navigation, colour scheme, login.
import { ActionIcon, AppShell, Box, Button, Group, Menu, Text, Tooltip, useComputedColorScheme, useMantineColorScheme } from '@mantine/core'
import { IconLogout, IconMenu2, IconMoon, IconPlus, IconSun } from '@tabler/icons-react'
import { useQuery, useQueryClient } from '@tanstack/react-query'
import { Link, Outlet } from '@tanstack/react-router'

import { isUnauthenticated, sessions } from '../api/clients'
import { logout } from '../api/login'
import { dropDrafts } from '../lib/draft'
import { Confirm } from './confirm'
import { Login } from './Login'

const PAGES = [
  ['/', 'Sessions'],
  ['/compare', 'Compare'],
  ['/benchmarks', 'Benchmarks'],
  ['/cluster', 'Cluster'],
] as const

/** Log out, and keep nothing of what this tab has shown or was written into it. */
async function leave(): Promise<void> {
  await logout()
  dropDrafts()
  location.replace('/')
}

export function Shell() {
  const client = useQueryClient()
  const { setColorScheme } = useMantineColorScheme()
  const scheme = useComputedColorScheme('light')
  const access = useQuery({
    queryKey: ['access'],
    queryFn: () => sessions.listSessions({ pageSize: 1 }),
    retry: false,
    staleTime: 60_000,
  })
  if (isUnauthenticated(access.error)) return <Login onDone={() => void client.resetQueries()} />
  const next = scheme === 'dark' ? 'light' : 'dark'
  return (
    <AppShell header={{ height: 52 }} padding={{ base: 'sm', sm: 'lg' }}>
      <Confirm />
      <a className="skip-link" href="#main">
        Skip to the content
      </a>
      <AppShell.Header>
        <Group h="100%" px={{ base: 'sm', sm: 'lg' }} justify="space-between" wrap="nowrap">
          <Group gap="lg" wrap="nowrap">
            <Link to="/" className="row-link" aria-label="Dressage, sessions">
              <Group gap={8} wrap="nowrap">
                <img src="/favicon.svg" width={24} height={24} alt="" />
                <Text fw={700} visibleFrom="xs">
                  Dressage
                </Text>
              </Group>
            </Link>
            <Group gap={4} component="nav" aria-label="Pages" visibleFrom="sm">
              {PAGES.map(([to, title]) => (
                <Button key={to} component={Link} to={to} size="compact-sm" variant="subtle" color="gray" className="nav-link" activeOptions={{ exact: to === '/' }}>
                  {title}
                </Button>
              ))}
            </Group>
            <Box hiddenFrom="sm">
              <Menu position="bottom-start" withinPortal>
                <Menu.Target>
                  <Button variant="subtle" color="gray" size="compact-sm" leftSection={<IconMenu2 size={16} />}>
                    Pages
                  </Button>
                </Menu.Target>
                <Menu.Dropdown>
                  {PAGES.map(([to, title]) => (
                    <Menu.Item key={to} component={Link} to={to}>
                      {title}
                    </Menu.Item>
                  ))}
                </Menu.Dropdown>
              </Menu>
            </Box>
          </Group>
          <Group gap="xs" wrap="nowrap">
            <Button component={Link} to="/new" size="compact-sm" leftSection={<IconPlus size={16} />}>
              New session
            </Button>
            <Tooltip label={`${next} colours`}>
              <ActionIcon variant="subtle" color="gray" onClick={() => setColorScheme(next)} aria-label={`Switch to ${next} colours`}>
                {scheme === 'dark' ? <IconSun size={18} /> : <IconMoon size={18} />}
              </ActionIcon>
            </Tooltip>
            <Tooltip label="log out">
              <ActionIcon variant="subtle" color="gray" onClick={() => void leave()} aria-label="Log out">
                <IconLogout size={18} />
              </ActionIcon>
            </Tooltip>
          </Group>
        </Group>
      </AppShell.Header>
      <AppShell.Main id="main">
        <Box maw={1400} mx="auto">
          <Outlet />
        </Box>
      </AppShell.Main>
    </AppShell>
  )
}
