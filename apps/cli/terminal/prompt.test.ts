import { PassThrough } from 'node:stream'
import { matching, secret } from '@tollkeeper/runtime/parsers'
import { expect, test } from 'vitest'
import { Interrupted, openPrompt } from './prompt.ts'

/** Opens a terminal. Returns its input, and the text that it shows. */
function openTerminal() {
  const input = Object.assign(new PassThrough(), { isTTY: true, setRawMode: () => input })
  const output = new PassThrough()
  let shown = ''
  output.on('data', (chunk) => {
    shown += chunk
  })
  const prompt = openPrompt({ input, output })
  return { prompt, type: (keys: string) => input.write(keys), shown: () => shown }
}

const word = { ...matching('a word', /^\w+$/), example: 'tree' }

test('shows what is typed; after an invalid answer, prints the reason and an example, and asks again', async () => {
  const { prompt, type, shown } = openTerminal()
  const answer = prompt.ask({ text: 'Word' }, word)
  type('two words\r')
  await expect.poll(shown).toContain('expected a word, got "two words", for example tree\n')
  type('one\r')
  expect(await answer).toBe('one')
  expect(shown().split('Word: ')).toHaveLength(3)
  expect(shown()).toContain('one')
  prompt.close()
})

test('uses the fallback for an empty line', async () => {
  const { prompt, type, shown } = openTerminal()
  const answer = prompt.ask({ text: 'Word', fallback: 'tree' }, word)
  type('\r')
  expect(await answer).toBe('tree')
  expect(shown()).toContain('Word [tree]: ')
  prompt.close()
})

test('shows the prompt for a hidden answer, but not what the user types', async () => {
  const { prompt, type, shown } = openTerminal()
  const answer = prompt.ask({ text: 'API key', isHidden: true }, secret)
  type('tk_secret')
  type('\x7f\x1b[D\r')
  expect(await answer).toBe('tk_secre')
  expect(shown()).toContain('API key: ')
  expect(shown()).not.toMatch(/tk_|secre/)
  const next = prompt.ask({ text: 'Word' }, word)
  type('tree\r')
  expect(await next).toBe('tree')
  expect(shown()).toContain('tree')
  prompt.close()
})

test('rejects the question at which the user presses Ctrl-C, and every later question', async () => {
  const { prompt, type } = openTerminal()
  const answer = prompt.ask({ text: 'Word' }, word)
  type('tr\x03')
  await expect(answer).rejects.toThrow(Interrupted)
  await expect(prompt.ask({ text: 'Word' }, word)).rejects.toThrow(Interrupted)
  prompt.close()
})

test('reads one line of a pipe for each question, and fails if the line is invalid or missing', async () => {
  const input = new PassThrough()
  const output = new PassThrough()
  output.resume()
  const prompt = openPrompt({ input, output })
  input.end('tree\nbush\ntwo words\n')
  expect([await prompt.ask({ text: 'Word' }, word), await prompt.ask({ text: 'Word' }, word)]).toEqual([
    'tree',
    'bush',
  ])
  await expect(prompt.ask({ text: 'Word' }, word)).rejects.toMatchObject({ code: 'invalid_answer' })
  await expect(prompt.ask({ text: 'Word' }, word)).rejects.toMatchObject({ code: 'no_answer' })
  prompt.close()
})
