// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @notice Measures the gas of the token's calls inside one transaction without any batch contract: the floor below
/// which no batch contract can get.
contract GasFloor {
    /// @return total Gas of the calls alone, without the transaction's base cost, its calldata or this loop. It
    /// includes the few instructions that put each call's arguments on the stack.
    function measure(address token, bytes[] calldata calls) external returns (uint256 total) {
        for (uint256 i; i < calls.length; ++i) {
            bytes memory data = calls[i];
            bool success;
            assembly ("memory-safe") {
                let start := gas()
                success := call(gas(), token, 0, add(data, 0x20), mload(data), 0, 0)
                total := add(total, sub(start, gas()))
            }
            require(success, "a call failed");
        }
    }
}
