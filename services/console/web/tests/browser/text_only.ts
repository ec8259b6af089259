// That text of models, of generated code and of people is only text wherever the page shows it.
import { expect, type Page } from '@playwright/test'

import type { Visit } from './visit'

export const MARKUP = '<img src=x onerror="alert(1)"><script>alert(2)</script><style>body{display:none}</style> [x](javascript:alert(3)) \u202Eevil\u202C'
export const TERMINAL = '\u001b[31mred\u001b]0;title\u0007'

const PHONE = { width: 390, height: 844 }

/** Count what the page requests from elsewhere, and what markup in a text would make it request, as problems. */
export function watchRequests({ page, problems }: Visit, base: string): void {
  page.on('request', (request) => {
    const { host, pathname, protocol } = new URL(request.url())
    if (!['blob:', 'data:'].includes(protocol) && (host !== new URL(base).host || pathname.endsWith('/x'))) problems.push(`request: ${request.url()}`)
  })
}

/** Elements that are wider than what they are in, and texts whose overrides of the direction reach the text beside them. */
async function brokenLayout(page: Page): Promise<string[]> {
  return page.evaluate(() => {
    const found: string[] = []
    const clips = (element: Element) => getComputedStyle(element).overflowX !== 'visible'
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)
    for (let node = walker.nextNode(); node !== null; node = walker.nextNode()) {
      const text = node.textContent ?? ''
      const element = node.parentElement
      if (element === null || text.trim() === '' || element.closest('script, style, [hidden]') !== null || !element.checkVisibility()) continue
      const shown = text.trim().slice(0, 40)
      const style = getComputedStyle(element)
      if (/[\u202a-\u202e]/.test(text) && style.display.startsWith('inline') && !/isolate|plaintext/.test(style.unicodeBidi)) found.push(`not isolated: ${shown}`)
      const range = document.createRange()
      range.selectNodeContents(node)
      const { left, right, width } = range.getBoundingClientRect()
      if (width === 0) continue
      let frame: Element | null = element
      while (frame !== null && !clips(frame) && !frame.matches('section, figure, td, th, [role=alert], [role=status], main')) frame = frame.parentElement
      if (frame === null || clips(frame)) continue
      const box = frame.getBoundingClientRect()
      if (right > box.right + 1 || left < box.left - 1) found.push(`outside of its ${frame.tagName.toLowerCase()}: ${shown}`)
    }
    return found
  })
}

/** Nothing of it became an element or ran, the page is as wide as its window, and what it shows is in its place. */
export async function onlyText({ page, problems }: Visit): Promise<void> {
  expect(await page.locator('img[src="x"], a[href^="javascript:"], main script, main style:not([data-mantine-styles])').count()).toBe(0)
  await expect(page.locator('main')).toBeVisible()
  const size = page.viewportSize()!
  for (const window of [size, PHONE]) {
    await page.setViewportSize(window)
    await page.waitForTimeout(300)
    expect.soft(await page.evaluate(() => document.documentElement.scrollWidth - innerWidth), `${window.width} px`).toBeLessThanOrEqual(0)
    expect.soft(await brokenLayout(page), `${window.width} px`).toEqual([])
  }
  await page.setViewportSize(size)
  expect(problems).toEqual([])
}
