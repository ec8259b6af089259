// What every page is checked for: errors of the browser, and barriers that axe finds in either colour scheme.
import AxeBuilder from '@axe-core/playwright'
import type { Page } from '@playwright/test'

/** Collect what the browser reports as an error. */
export function watchProblems(page: Page, problems: string[]): void {
  page.on('console', (message) => {
    // Violations of the page's policy are errors of the console; answers of the server with an error status are, too.
    if (message.type() === 'error' && !/status of (4|5)\d\d|ERR_CONNECTION|ERR_INCOMPLETE|ERR_EMPTY/.test(message.text())) problems.push(message.text())
  })
  page.on('pageerror', (error) => problems.push(String(error)))
  page.on('dialog', (dialog) => {
    problems.push(`dialog: ${dialog.message()}`)
    void dialog.dismiss()
  })
}

/** Collect the barriers of the page as it is shown now. */
export async function accessibleIn(page: Page, what: string, barriers: string[]): Promise<void> {
  for (const scheme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme: scheme })
    await page.waitForTimeout(300) // colours change by a transition
    const { violations } = await new AxeBuilder({ page }).withTags(['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa']).analyze()
    const found = violations.map((violation) => `${what}, ${scheme}: ${violation.id}: ${violation.nodes.map((node) => `${node.target.join(' ')} ${node.any[0]?.message ?? ''}`).join(' | ')}`)
    barriers.push(...found)
  }
  await page.emulateMedia({ colorScheme: 'light' })
}

/** Pixels by which the page is wider than the window. */
export async function overflow(page: Page): Promise<number> {
  return page.evaluate(() => document.documentElement.scrollWidth - innerWidth)
}
