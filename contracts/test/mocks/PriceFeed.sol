// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @notice Replaces Chainlink's ETH/USD aggregator on a local chain, with 8 decimals and a price that anyone may set.
contract PriceFeed {
    uint8 public constant decimals = 8;
    string public constant description = "ETH / USD";
    uint256 public constant version = 4;

    int256 private _answer;
    uint256 private _updatedAt;

    function setAnswer(int256 answer) external {
        (_answer, _updatedAt) = (answer, block.timestamp);
    }

    function latestAnswer() external view returns (int256) {
        return _answer;
    }

    function latestRoundData() external view returns (uint80, int256, uint256, uint256, uint80) {
        return (1, _answer, _updatedAt, _updatedAt, 1);
    }
}
