import { describe, expect, test } from 'vitest'
import { challengeMediaType } from '../protocol/challenge.ts'
import { prefersHtml } from './accept.ts'

describe('a client prefers HTML', () => {
  test.each([
    [
      'the value that Chrome sends',
      'text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8',
    ],
    ['the value that Firefox sends', 'text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8'],
    ['the value that Safari sends', 'text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8'],
    ['the value that Lynx sends', 'text/html, text/plain, text/sgml, */*;q=0.01'],
    ['only HTML', 'text/html'],
    ['only XHTML', 'application/xhtml+xml'],
    ['HTML, and JSON at a lower quality', 'application/json;q=0.9, text/html'],
    ['HTML in capitals and with spaces', ' TEXT/HTML ; charset=utf-8 ; Q=0.9 , */* ; q=0.1'],
    ['HTML, and JSON at the quality 0', 'text/html;q=0.1, application/json;q=0'],
  ])('if its Accept header is %s', (_, accept) => expect(prefersHtml(accept)).toBe(true))
})

describe('a client prefers JSON', () => {
  test.each([
    ['missing', undefined],
    ['empty', ''],
    ['the value that fetch and curl send', '*/*'],
    ['the value that axios sends', 'application/json, text/plain, */*'],
    ['only JSON', 'application/json'],
    ['text/*', 'text/*'],
    ['the value for an image that a page loads', 'image/avif,image/webp,image/apng,*/*;q=0.8'],
    ['HTML and JSON equally', 'text/html, application/json'],
    ['HTML and */* equally', 'text/html, */*'],
    ['HTML and application/* equally', 'text/html, application/*'],
    ['JSON, and HTML at a lower quality', 'text/html;q=0.9, application/json'],
    ['HTML at the quality 0', 'text/html;q=0'],
    ['HTML with a malformed quality', 'text/html;q=high, */*;q=0.1'],
    ['HTML with a quality above 1', 'text/html;q=5, */*;q=0.1'],
    ['HTML, and a type that ends with +json', 'text/html;q=0.9, application/problem+json'],
    ['HTML, and our challenge’s media type', `text/html, ${challengeMediaType};q=0.1`],
    ['a value that is longer than any browser’s', `text/html,${'a/b,'.repeat(600)}`],
  ])('if its Accept header is %s', (_, accept) => expect(prefersHtml(accept)).toBe(false))
})
