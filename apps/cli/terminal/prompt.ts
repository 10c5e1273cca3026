import { createInterface, type Interface } from 'node:readline/promises'
import { Writable } from 'node:stream'
import type { Parser } from '@tollkeeper/runtime/parsers'
import { CliError } from './cliError.ts'
import { parseValue } from './options.ts'

/** The user pressed Ctrl-C at a question. */
export class Interrupted extends Error {
  override readonly name = 'Interrupted'
}

export type Question = {
  /** The question, without punctuation at the end. */
  text: string
  /** Value for an empty line. */
  fallback?: string
  /** Whether the terminal hides the answer. */
  isHidden?: boolean
}

/** Asks questions one after another, on a terminal or with lines of a pipe. */
export type Prompt = {
  /**
   * Asks until the answer is valid. A pipe has only one attempt. @throws {CliError} `no_answer`, `invalid_answer`. @throws
   * {Interrupted}
   */
  ask: <T>(question: Question, parser: Parser<T> & { example?: string }) => Promise<T>
  close: () => void
}

type Streams = {
  input: NodeJS.ReadableStream & { isTTY?: boolean }
  output: NodeJS.WritableStream
}

/** Opens a prompt. Questions go to standard error, so that standard output contains only the result. */
export function openPrompt(
  { input, output }: Streams = { input: process.stdin, output: process.stderr },
): Prompt {
  const isTerminal = input.isTTY === true
  let isHidden = false
  const shown = new Writable({
    write(chunk, _, done) {
      if (!isHidden) output.write(chunk)
      done()
    },
  })
  const lines: Interface = createInterface({ input, output: shown, terminal: isTerminal })
  const interrupted = new AbortController()
  lines.on('SIGINT', () => interrupted.abort())
  const piped = isTerminal ? undefined : lines[Symbol.asyncIterator]()

  async function readLine({ text, fallback, isHidden: hides = false }: Question): Promise<string> {
    const prompt = `${text}${fallback === undefined ? '' : ` [${fallback}]`}: `
    if (piped !== undefined) {
      output.write(`${prompt}\n`)
      const { value, done } = await piped.next()
      if (done)
        throw new CliError('no_answer', `${text}: standard input ended. Give every answer as a flag instead`)
      return value
    }
    try {
      const answer = lines.question(prompt, { signal: interrupted.signal })
      // Hide only what the user types: the prompt itself is already written.
      isHidden = hides
      return await answer
    } catch (error) {
      if (interrupted.signal.aborted) throw new Interrupted()
      throw error
    } finally {
      isHidden = false
      if (hides) output.write('\n')
    }
  }

  return {
    async ask(question, parser) {
      for (;;) {
        const typed = (await readLine(question)).trim() || (question.fallback ?? '')
        try {
          return parseValue(typed, parser)
        } catch (error) {
          const example = parser.example === undefined ? '' : `, for example ${parser.example}`
          const wrong = `${(error as Error).message}${example}`
          if (piped !== undefined) throw new CliError('invalid_answer', `${question.text}: ${wrong}`, error)
          output.write(`  ${wrong}\n`)
        }
      }
    },
    close: () => lines.close(),
  }
}
