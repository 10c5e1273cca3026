// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @title Reads why the last call failed
library Reason {
    /// Maximum size of a reason in bytes: an Error(string) of up to 64 characters fits.
    uint256 private constant MAX_SIZE = 132;
    /// Memory of a `bytes` of MAX_SIZE: the length word, and the data rounded up to whole words.
    uint256 private constant MEMORY = 0xc0;

    /// Returns the last call's return data, truncated so that no callee can make its caller pay for copying a long one.
    function read() internal pure returns (bytes memory reason) {
        assembly ("memory-safe") {
            let size := returndatasize()
            if gt(size, MAX_SIZE) { size := MAX_SIZE }
            reason := mload(0x40)
            mstore(0x40, add(reason, MEMORY))
            mstore(reason, size)
            returndatacopy(add(reason, 0x20), 0, size)
        }
    }
}
