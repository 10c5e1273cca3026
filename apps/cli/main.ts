import { runCommandLine } from './program.ts'

// A closed pipe (`| head`) is not an error.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code !== 'EPIPE') throw error
  process.exit()
})

await runCommandLine(process.argv.slice(2))
