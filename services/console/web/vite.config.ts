import react from '@vitejs/plugin-react'
import { defineConfig } from 'vite'

import { mujocoWithoutEval } from './without-eval'

export default defineConfig({
  plugins: [react()],
  build: {
    outDir: '../dressage_console/static',
    emptyOutDir: true,
    target: 'es2022',
    // Fonts and pictures stay files: the page's policy allows no data of other kinds.
    assetsInlineLimit: 0,
    sourcemap: false,
    chunkSizeWarningLimit: 1200,
  },
  worker: { format: 'es', plugins: () => [mujocoWithoutEval()] },
})
