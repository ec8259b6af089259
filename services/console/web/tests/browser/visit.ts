// A visit of the page in a browser: what goes wrong is collected, and checked at the end of each test.
import AxeBuilder from '@axe-core/playwright'
import { type Browser, type BrowserContext, expect, type Page } from '@playwright/test'

export type Visit = { context: BrowserContext; page: Page; problems: string[] }

/** A new browser profile with one tab. */
export async function visit(browser: Browser): Promise<Visit> {
  const context = await browser.newContext({ viewport: { width: 1360, height: 860 }, permissions: ['clipboard-read', 'clipboard-write'] })
  context.setDefaultTimeout(60_000) // as in playwright.config.ts, which does not reach contexts of our own
  const page = await context.newPage()
  const problems: string[] = []
  page.on('console', (message) => {
    // Violations of the page's policy are errors of the console; answers of the server with an error status are, too.
    if (message.type() === 'error' && !/status of (4|5)\d\d|ERR_CONNECTION|ERR_INCOMPLETE|ERR_EMPTY/.test(message.text())) problems.push(message.text())
  })
  page.on('pageerror', (error) => problems.push(String(error)))
  page.on('dialog', (dialog) => {
    problems.push(`dialog: ${dialog.message()}`)
    void dialog.dismiss()
  })
  return { context, page, problems }
}

/** Log in with the token in the server's address. The login has to end before the page goes elsewhere. */
export async function logIn(page: Page, address: string): Promise<void> {
  await page.goto(address)
  await expect(page.getByRole('heading', { name: 'Sessions' })).toBeVisible()
}

/** What axe finds on the page, in both colour schemes. */
export async function barriersOf(page: Page, what: string): Promise<string[]> {
  const found: string[] = []
  for (const scheme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme: scheme })
    await page.waitForTimeout(300) // colours change by a transition
    const { violations } = await new AxeBuilder({ page }).withTags(['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa']).analyze()
    found.push(...violations.map((violation) => `${what}, ${scheme}: ${violation.id}: ${violation.nodes.map((node) => `${node.target.join(' ')} ${node.any[0]?.message ?? ''}`).join(' | ')}`))
  }
  await page.emulateMedia({ colorScheme: 'light' })
  return found
}

/** Choose an option of a list. A list that moves while the page still loads closes again, for people too; they click once more. */
export async function choose(page: Page, list: string, option: string): Promise<void> {
  await expect(async () => {
    await page.getByRole('combobox', { name: list }).click({ timeout: 20_000 })
    await page.getByRole('option', { name: option, exact: true }).click({ timeout: 3_000 })
  }).toPass({ timeout: 60_000 })
}
