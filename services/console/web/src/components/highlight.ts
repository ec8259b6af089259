// Syntax colours, loaded when code is shown. Only the grammars in use are bundled, and no WebAssembly.
import { createHighlighterCore, type HighlighterCore, type ThemedToken } from 'shiki/core'
import { createJavaScriptRegexEngine } from 'shiki/engine/javascript'

export type Language = 'python' | 'json' | 'text'

let created: Promise<HighlighterCore> | null = null

export async function tokens(code: string, language: Language, dark: boolean): Promise<ThemedToken[][]> {
  created ??= createHighlighterCore({
    themes: [import('shiki/themes/github-light-high-contrast.mjs'), import('shiki/themes/github-dark-default.mjs')],
    langs: [import('shiki/langs/python.mjs'), import('shiki/langs/json.mjs')],
    engine: createJavaScriptRegexEngine(),
  })
  const highlighter = await created
  return highlighter.codeToTokensBase(code, { lang: language, theme: dark ? 'github-dark-default' : 'github-light-high-contrast' })
}
