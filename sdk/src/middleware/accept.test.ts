import { describe, expect, test } from 'vitest'
import { challengeMediaType } from '../protocol/challenge.ts'
import { prefersHtml } from './accept.ts'

describe('prefers HTML', () => {
  test.each([
    ['Chrome', 'text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8'],
    ['Firefox', 'text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8'],
    ['Safari', 'text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8'],
    ['Lynx', 'text/html, text/plain, text/sgml, */*;q=0.01'],
    ['HTML alone', 'text/html'],
    ['XHTML alone', 'application/xhtml+xml'],
    ['JSON at a lower quality', 'application/json;q=0.9, text/html'],
    ['spaces and capitals', ' TEXT/HTML ; charset=utf-8 ; Q=0.9 , */* ; q=0.1'],
    ['no JSON', 'text/html;q=0.1, application/json;q=0'],
  ])('for %s', (_, accept) => expect(prefersHtml(accept)).toBe(true))
})

describe('prefers JSON', () => {
  test.each([
    ['no header', undefined],
    ['an empty value', ''],
    ['fetch and curl', '*/*'],
    ['axios', 'application/json, text/plain, */*'],
    ['JSON alone', 'application/json'],
    ['text/*', 'text/*'],
    ['an image that a page loads', 'image/avif,image/webp,image/apng,*/*;q=0.8'],
    ['HTML and JSON equally', 'text/html, application/json'],
    ['HTML and */* equally', 'text/html, */*'],
    ['HTML and application/* equally', 'text/html, application/*'],
    ['HTML at a lower quality', 'text/html;q=0.9, application/json'],
    ['no HTML', 'text/html;q=0'],
    ['a malformed quality', 'text/html;q=high, */*;q=0.1'],
    ['a quality above 1', 'text/html;q=5, */*;q=0.1'],
    ['a type that ends with +json', 'text/html;q=0.9, application/problem+json'],
    ['our challenge’s media type', `text/html, ${challengeMediaType};q=0.1`],
    ['a value that is longer than any browser’s', `text/html,${'a/b,'.repeat(600)}`],
  ])('for %s', (_, accept) => expect(prefersHtml(accept)).toBe(false))
})
