/**
 * Counts phrases that a reader has to decode, in comments, docs, test titles and texts for users.
 *
 * `node tools/plainEnglish.ts [--list] [--commits N] [PATH …]` prints the count of each folder; `--list` prints each phrase with its
 * line. Rewrite each sentence that it finds, with the actor as the subject. CONTRIBUTING.md has the rules.
 * `test/house/plainEnglish.test.ts` limits the counts.
 */
import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { extname, join } from 'node:path'
import { parseArgs } from 'node:util'
import phrasesToAvoid from './plainEnglish.json' with { type: 'json' }

/** A phrase to avoid, and what to write instead. */
type Phrase = { name: string; pattern: RegExp; instead: string }

const phrases: readonly Phrase[] = phrasesToAvoid.map(({ pattern, flags, ...phrase }) => ({
  ...phrase,
  pattern: new RegExp(pattern, flags),
}))

export type Found = { file: string; line: number; phrase: string; instead: string; text: string }
export type Count = { hits: number; words: number }

/** Returns the hits for each 1,000 words. */
export function rateOf({ hits, words }: Count): number {
  return (1_000 * hits) / Math.max(1, words)
}

/** Returns the folder for which a file's hits are counted: at most two levels deep. */
function folderOf(file: string): string {
  return file.split('/').slice(0, -1).slice(0, 2).join('/') || '.'
}

/** Reads the prose of tracked files, and returns each phrase to avoid and the counts by folder. */
export function countPhrases(root: string, paths: readonly string[] = []) {
  const found: Found[] = []
  const folders = new Map<string, Count>()
  for (const file of listFiles(root, paths)) {
    const count = folders.get(folderOf(file)) ?? { hits: 0, words: 0 }
    folders.set(folderOf(file), count)
    for (const { line, text } of proseOf(file, readFileSync(join(root, file), 'utf8'))) {
      count.words += countWords(text)
      for (const one of findPhrases(text)) {
        count.hits++
        found.push({ file, ...one, line: line + text.slice(0, one.at).split('\n').length - 1 })
      }
    }
  }
  return { found, folders, total: sumOf([...folders.values()]) }
}

/** Returns the counts over the subjects of the last commits. */
export function countSubjects(root: string, commits: number) {
  const subjects = git(root, 'log', '-n', `${commits}`, '--format=%s').trim().split('\n')
  const found = subjects.flatMap((subject) =>
    findPhrases(subject).map(({ phrase, instead }) => ({ phrase, instead, text: subject })),
  )
  return {
    found,
    hits: found.length,
    words: sumOf(subjects.map((text) => ({ hits: 0, words: countWords(text) }))).words,
  }
}

/** Returns the phrases to avoid in a text. */
export function findPhrases(text: string) {
  return phrases.flatMap(({ name, pattern, instead }) =>
    [...text.matchAll(pattern)].map(({ 0: match, index: at }) => ({
      phrase: name,
      instead,
      at,
      text: text.slice(Math.max(0, at - 30), at + Math.min(match.length, 60) + 30).replaceAll(/\s+/g, ' '),
    })),
  )
}

function sumOf(counts: readonly Count[]): Count {
  return counts.reduce((sum, { hits, words }) => ({ hits: sum.hits + hits, words: sum.words + words }), {
    hits: 0,
    words: 0,
  })
}

function countWords(text: string): number {
  return text.match(/[\p{L}'’]+/gu)?.length ?? 0
}

function git(root: string, ...args: string[]): string {
  return execFileSync('git', args, { cwd: root, encoding: 'utf8', maxBuffer: 2 ** 28 })
}

const kinds: Record<string, Language> = {
  '.ts': 'script',
  '.tsx': 'script',
  '.js': 'script',
  '.mjs': 'script',
  '.sol': 'script',
  '.css': 'style',
  '.sql': 'sql',
  '.md': 'markdown',
}

type Language = 'script' | 'style' | 'sql' | 'markdown'
type Prose = { line: number; text: string }

function listFiles(root: string, paths: readonly string[]): string[] {
  // This file has the phrases, and its test has examples of them.
  return git(root, 'ls-files', '--', ...paths)
    .split('\n')
    .filter((file) => extname(file) in kinds && !/(^|\/)(generated|dist)\/|\.d\.ts$|plainEnglish/.test(file))
}

/** Returns a file's prose with the lines where it begins: Markdown without code, or comments and texts of three words and more. */
export function proseOf(file: string, text: string): Prose[] {
  switch (kinds[extname(file)]) {
    case 'markdown': {
      const blank = (code: string) => code.replaceAll(/[^\n]/g, '')
      const prose = text
        .replaceAll(/^```[\s\S]*?^```/gm, blank)
        .replaceAll(/`[^`\n]*`/g, 'x')
        .replaceAll(/^\|[-| :]+\|$/gm, '')
      return [{ line: 1, text: prose }]
    }
    case 'sql':
      return [...joinLines(text.matchAll(/^[^'\n]*?--(.*)$/gm), text)]
    case 'style':
      return [...text.matchAll(/\/\*([\s\S]*?)\*\//g)].map(({ 1: comment = '', index }) => ({
        line: lineOf(text, index),
        text: trimComment(comment),
      }))
    default:
      return readScript(text)
  }
}

function lineOf(text: string, at: number): number {
  return text.slice(0, at).split('\n').length
}

/** Joins comments of adjacent lines, so that a phrase across two lines is found. */
function* joinLines(matches: Iterable<RegExpExecArray>, text: string): Iterable<Prose> {
  let open: Prose | undefined
  let last = 0
  for (const { 1: comment = '', index } of matches) {
    const line = lineOf(text, index)
    if (open && line === last + 1) open.text += `\n${comment.trim()}`
    else {
      if (open) yield open
      open = { line, text: comment.trim() }
    }
    last = line
  }
  if (open) yield open
}

function trimComment(comment: string): string {
  return comment
    .replaceAll(/^[ \t]*\*? ?/gm, '')
    .replace(/^@example[\s\S]*/m, '')
    .replaceAll(/`[^`\n]*`/g, 'x')
}

const isSql = /^(?:alter|create|delete|drop|from|insert|select|update|with)\b/i

/** Reads the comments and texts of a program in TypeScript, JavaScript or Solidity. */
function readScript(source: string): Prose[] {
  const prose: Prose[] = []
  const token =
    /\/\*[\s\S]*?\*\/|\/\/[^\n]*(?:\n[ \t]*\/\/[^\n]*)*|'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"|`(?:[^`\\]|\\[\s\S])*`/g
  for (const { 0: match, index } of source.matchAll(token)) {
    const line = lineOf(source, index)
    if (match.startsWith('/*')) prose.push({ line, text: trimComment(match.slice(2, -2).replace(/^\*/, '')) })
    else if (match.startsWith('//'))
      prose.push({ line, text: trimComment(match.replaceAll(/^[ \t]*\/{2,}/gm, '')) })
    else {
      const text = match.slice(1, -1).replaceAll(/\$\{[^}]*\}/g, 'x')
      if (/^\p{L}[\p{L}'’]* \S+ \S+/u.test(text) && !isSql.test(text)) prose.push({ line, text })
    }
  }
  return prose
}

if (import.meta.main) {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      list: { type: 'boolean' },
      commits: { type: 'string' },
      help: { type: 'boolean', short: 'h' },
    },
  })
  const root = git(process.cwd(), 'rev-parse', '--show-toplevel').trim()
  const print = (name: string, count: Count) =>
    console.log(
      `${name.padEnd(40)} ${count.hits} in ${count.words} words, ${rateOf(count).toFixed(1)} per 1,000`,
    )
  if (values.help) console.log('node tools/plainEnglish.ts [--list] [--commits N] [PATH …]')
  else if (values.commits) {
    const counted = countSubjects(root, Number(values.commits))
    for (const { phrase, text } of counted.found) console.log(`${phrase}: ${text}`)
    print('commit subjects', counted)
  } else {
    const { found, folders, total } = countPhrases(root, positionals)
    if (values.list)
      for (const { file, line, phrase, text, instead } of found)
        console.log(`${file}:${line}: ${phrase}: …${text}…\n    ${instead}`)
    for (const [folder, count] of [...folders].sort(([, a], [, b]) => rateOf(b) - rateOf(a)))
      print(folder, count)
    print('total', total)
  }
}
