/** Nobody builds it twice. */
export default { experimental: { turbopackFileSystemCacheForBuild: false } }
